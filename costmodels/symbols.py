"""The symbols of all formulas: positive numbers, named as in the documentation."""

from __future__ import annotations

from sympy import Symbol


def _whole(name: str) -> Symbol:
    return Symbol(name, integer=True, positive=True)  # type: ignore[no-untyped-call]


def _rate(name: str) -> Symbol:
    return Symbol(name, positive=True)  # type: ignore[no-untyped-call]


NUM_PARAMS = _whole("P")
"""P: parameters (elements) of a block."""
PARAM_DEGREE = _whole("p")
"""p: ranks that together hold one copy of the parameters in forward."""
SECONDARY_DEGREE = _whole("s")
"""s: the same for backward, where it is another copy."""
GRAD_DEGREE = _whole("g")
"""g: ranks that together hold one copy of the reduced gradients."""
OPTIM_DEGREE = _whole("o")
"""o: ranks that together hold one copy of the optimizer states."""
WORLD_SIZE = _whole("N")
"""N: ranks."""
NUM_MICRO_BATCHES = _whole("M")
"""M: micro-batches per optimizer step."""

PARAM_WIDTH = _whole("c_p")
"""c_p: bytes of a parameter as the model computes with it."""
GRAD_WIDTH = _whole("c_g")
"""c_g: bytes of a gradient as it is kept."""
REDUCE_WIDTH = _whole("c_r")
"""c_r: bytes of a gradient as it is sent."""
OPTIM_WIDTH = _whole("k")
"""k: bytes of optimizer states per parameter, an fp32 copy of the parameters included where there is one."""
UPDATE_WIDTH = _whole("u")
"""u: bytes per parameter that the optimizer's update reads and writes."""

FLOP = _whole("F")
"""F: floating-point operations of a segment."""
IO_BYTES = _whole("B")
"""B: bytes that the operators without FLOPs of a segment read and write."""
PRODUCT_IO_BYTES = _whole("B_F")
"""B_F: bytes that the operators with FLOPs of a segment read and write."""
NUM_OPERATORS = _whole("n")
"""n: operators of a segment."""
FLOP_PER_S = _rate("f")
"""f: floating-point operations per second of large matrix products."""
BYTES_PER_S = _rate("w")
"""w: bytes per second of the device's memory."""
LAUNCH_S = _rate("t")
"""t: host seconds per operator."""

MOVED_WIDTH = _whole("m")
"""m: bytes per parameter of a shard that cross the link between host and device."""
HOST_WIDTH = _whole("h")
"""h: bytes per parameter that an update on the host reads and writes."""
LINK_BYTES_PER_S = _rate("w_L")
"""w_L: bytes per second of a rank's link to its host, with all links at once."""
HOST_BYTES_PER_S = _rate("w_H")
"""w_H: bytes per second of a rank's part of the host's memory."""
