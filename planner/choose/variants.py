"""What a strategy can be beside its degrees: states on the host, and, only when asked for, quantized collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from costmodels.deepspeed.memory import host_bytes
from costmodels.strategy import Offload, StepShape, Strategy
from planner.choose.setting import Setting
from planner.errors import HostError
from planner.report.figures import bytes_text

_QUANTIZED = ((False, False), (True, False), (False, True), (True, True))
"""(weights, gradients), the least lossy first."""


def variants(asked: Setting, strategies: Iterable[Strategy]) -> tuple[Strategy, ...]:
    """Returns every strategy with all that the job allows beside its degrees, in the order that breaks ties.

    Offload that is left to the planner is not looked at where nothing is known of the host, nor on CPUs, whose memory
    is the host's: there it saves nothing.
    """
    offloads = _offloads(asked)
    quantized = _QUANTIZED if asked.job.allow_lossy else _QUANTIZED[:1]
    every = tuple(strategies)
    return tuple(
        replace(strategy, offload=offload, quantized_weights=weights, quantized_gradients=gradients)
        for offload in offloads
        for weights, gradients in quantized
        for strategy in every
    )


def check_host(asked: Setting, strategies: Sequence[Strategy]) -> None:
    """Checks that the nodes' hosts have room for one at least of the strategies, in one of the shapes.

    Raises:
        HostError: The job asks for offload, and no node's host can hold what that would move.
    """
    needed = [_needed_bytes(asked, strategy, shape) for strategy in strategies for shape in asked.shapes]
    available = asked.machine.host_bytes or 0
    if min(needed) > available:
        raise HostError(
            f"offload needs {bytes_text(min(needed) * asked.machine.ranks_per_node)} of host memory on each node at "
            f"least, and {asked.profile.name} has {bytes_text(available * asked.machine.ranks_per_node)}: use more "
            "nodes, or --offload none"
        )


def has_host_room(asked: Setting, strategy: Strategy, shape: StepShape) -> bool:
    """Returns whether the nodes' hosts hold what the strategy moves there."""
    return _needed_bytes(asked, strategy, shape) <= (asked.machine.host_bytes or 0)


def _needed_bytes(asked: Setting, strategy: Strategy, shape: StepShape) -> int:
    if shape.device == "cpu":
        return 0  # the device's own, which the budget is for
    return host_bytes(asked.workload, (strategy,) * asked.workload.num_classes, shape)


def _offloads(asked: Setting) -> tuple[Offload, ...]:
    if asked.job.offload == "none":
        return ("none",)
    if asked.job.offload == "optimizer":
        return ("optimizer",)
    known = asked.profile.host is not None and asked.profile.device.kind == "cuda"
    return ("none", "optimizer", "all") if known else ("none",)
