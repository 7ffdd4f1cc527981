"""Plays one optimizer step through: who computes, who sends, and who waits for whom."""
