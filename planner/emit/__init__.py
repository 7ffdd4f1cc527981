"""Writes a plan as a folder that trains by itself."""
