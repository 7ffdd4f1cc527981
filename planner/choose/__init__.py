"""Chooses among strategies: the search, its rivals, and why nothing fits."""
