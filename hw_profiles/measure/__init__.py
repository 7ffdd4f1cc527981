"""Measures the machine that it runs on."""
