"""Checkpoints that any plan can load, whichever wrote them: on other numbers of ranks, in another precision, elsewhere.

A parameter, and each of its optimizer states, is a flat tensor of the parameter's elements in their own order. A rank
writes the ranges that it updates and reads those that it needs: `torch.distributed.checkpoint` does both.
"""
