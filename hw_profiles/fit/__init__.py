"""Fits the levels of a machine to measured curves. Of this package, this folder alone knows formulas."""
