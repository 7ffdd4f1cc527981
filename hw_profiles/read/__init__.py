"""Reads what people have already: topology dumps, and the output of collective benchmarks."""
