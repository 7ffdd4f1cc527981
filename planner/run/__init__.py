"""Launches an emitted folder and reports what was measured beside what was predicted."""
