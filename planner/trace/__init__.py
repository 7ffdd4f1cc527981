"""The trace: runs one training step of a model on fake tensors and finds what it costs.

fake_model    the user's model, of tensors without memory     shadow, fake_world: what makes that work
record_step   forward, loss, backward under the recorder      recorder, flops; recording: the value
              with the kernels and casts of the device        cpu_kernels, cuda_kernels, kernels; autocast
operators     kernels that no dispatcher sees                 find_experts, leaf_layers, frozen_inputs: for engines
find_blocks   the units that are gathered at once             signature; layout: the value
segments      what each block costs in each phase             liveness
amounts       the same for any micro-batch                    truncate: a second trace of fewer layers
trace_step    both traces, with recomputation                 multiply, transfer, coarsen
fallback      the other ways when this one fails              record_joint, joint_graph; static_walk; fallback_writer
trace_model   all of it in order                              notices, left_as_it_was
explain_failure  what went wrong, and what to try             advice, failure_text, refuse, forward_only, time_limit
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
