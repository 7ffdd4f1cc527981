"""How the libraries run collectives, by the names of `costmodels.algorithms`."""

from __future__ import annotations

from hw_profiles.schema import Algorithm, Operation

GLOO: dict[Operation, tuple[Algorithm, ...]] = {
    "all_gather": ("ring",),
    "reduce_scatter": ("ring_all_reduce",),
    "all_reduce": ("ring",),
    "reduce": ("ring_then_gather",),
    "broadcast": ("tree",),
    "all_to_all": ("direct",),
}
"""Source: gloo 0.5, gloo/allgather.cc, allreduce.cc, reduce.cc, broadcast.cc, alltoall.cc; torch 2.13,
ProcessGroupGloo.cpp, whose reduce-scatter is an all-reduce."""

NCCL: dict[Operation, tuple[Algorithm, ...]] = {
    "all_gather": ("ring",),
    "reduce_scatter": ("ring",),
    "all_reduce": ("ring", "tree"),
    "reduce": ("ring",),
    "broadcast": ("ring",),
    "all_to_all": ("direct",),
}
"""NCCL and RCCL. Source: NCCL 2.28, src/graph/tuning.cc and src/enqueue.cc; torch's and nccl-tests' all-to-all sends to
and receives from each peer."""
