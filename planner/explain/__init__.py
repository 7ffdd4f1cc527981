"""Explains a plan in formulas and numbers, and why another strategy lost."""
