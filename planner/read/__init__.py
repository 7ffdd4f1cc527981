"""Reads what the user gave: options, models by name, saved traces, planned folders, DeepSpeed configurations."""
