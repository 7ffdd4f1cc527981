"""Graphs of links: the hierarchy of levels in one, and what its wires allow at best."""
