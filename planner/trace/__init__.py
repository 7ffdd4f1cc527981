"""The trace: runs one training step of a model on fake tensors and finds what it costs.

trace_model     all of it in order                            trace_step: of all layers or a few, recomputed too
fake            the user's model, of tensors without memory   kernels: as its device runs them; operators: unseen ones
record          one step as a torch.fx graph                  flop_formulas: what each operator computes
blocks          the units that are gathered at once
measure         what each does in each phase                  for any micro-batch, with recomputation
ways            the other ways when this one fails            failure: what went wrong, and what to try
"""

from planner.errors import InputError

try:
    import torch as _  # noqa: F401 - what all modules here stand on
except ImportError as error:
    raise InputError(
        f"torch is needed to trace a model, and cannot be imported here: {error}. Install it (pip install torch), or "
        "give as MODEL a trace that `shardplan trace MODEL --out FILE` wrote where torch is"
    ) from error

from planner.trace.trace_model import trace

__all__ = ["trace"]
