"""Measures the segments of a step, for any micro-batch and with recomputation.

segments    what each block does in each phase        recomputing: as the launcher recomputes
amounts     from two micro-batches                    coarsen: where they do not run the same; settle
outline     lists of equal layers                     truncate: the first of them; expand, multiply: all again
"""
