"""A workload written by hand: an embedding, equal layers and a head, with round numbers."""

from __future__ import annotations

from costmodels.workload import (
    Amount,
    Block,
    Event,
    ModuleCall,
    Parameter,
    Phase,
    Recomputed,
    Segment,
    Timeline,
    Workload,
)


def hand_workload(
    sizes: tuple[int, ...] = (100, 60, 60, 40),
    classes: tuple[int, ...] = (0, 1, 1, 2),
    *,
    frozen: tuple[int, ...] = (),
    differentiated: tuple[int, ...] | None = None,
    flop: int = 1000,
    io_bytes: int = 100,
    num_operators: int = 1,
) -> Workload:
    """Returns blocks of one parameter each; forward in order, backward in reverse with twice the work.

    Args:
        sizes: elements of each block's parameter.
        classes: class of each block; class 1 can be recomputed.
        frozen: blocks whose parameter is not trained.
        differentiated: blocks with a backward segment; None: all.
        flop: of a forward segment and sample.
        io_bytes: of a forward segment and sample.
        num_operators: of a forward segment.
    """
    order = range(len(sizes))

    def segment(block: int, phase: Phase) -> Segment:
        times = 1 if phase == "forward" else 2
        return Segment(
            block,
            phase,
            (ModuleCall(f"block.{block}", (block,), inputs_require_grad=block > 0),),
            Amount(0, times * flop),
            Amount(0, times * io_bytes),
            times * num_operators,
            gradients=(block,) if phase == "backward" and block not in frozen else (),
        )

    backward = [block for block in reversed(order) if differentiated is None or block in differentiated]
    return Workload(
        tuple(Parameter(f"block.{block}.weight", (sizes[block],), block not in frozen) for block in order),
        tuple(Block(f"block.{block}", classes[block], (block,), classes[block] == 1) for block in order),
        (*(segment(block, "forward") for block in order), *(segment(block, "backward") for block in backward)),
    )


def timeline(peak: Amount, net: Amount) -> Timeline:
    """Returns the events of a segment that holds `peak` bytes and leaves `net`."""
    return Timeline(
        (Event(peak.constant, peak.per_sample), Event(net.constant - peak.constant, net.per_sample - peak.per_sample))
    )


def recomputed(phase: Phase, peak: Amount, net: Amount, kept: Amount, forward_peak: Amount) -> Recomputed:
    """Returns the memory where the block is recomputed: forward leaves `kept` of what backward finds."""
    if phase == "forward":
        return Recomputed(timeline(peak, kept))
    again = Amount(-net.constant - kept.constant, -net.per_sample - kept.per_sample)
    return Recomputed(timeline(peak, net), timeline(forward_peak, again))


def one_block(num_params: int) -> Workload:
    """Returns a single block of so many parameters."""
    return hand_workload((num_params,), (0,))
