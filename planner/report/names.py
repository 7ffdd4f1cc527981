"""Strategies in words: the published system that a point of the search space is, and what it shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodels.strategy import Strategy
from planner.choose.systems import name_of, systems
from planner.plan import PlannedHardware, PlannedStrategy, Predicted

CAUSE_NAMES: Mapping[str, str] = {
    "forward_s": "exposed in forward",
    "backward_s": "exposed in backward",
    "boundary_s": "gradients at the boundary",
    "update_s": "parameters after the update",
    "control_s": "control",
}
"""The fields of `ExposedTime` in words."""


def system_name(strategy: PlannedStrategy, hardware: PlannedHardware) -> str:
    """Returns the published system with these degrees, or the degrees themselves where none has them."""
    if hardware.world_size == 1:
        return "one rank" if strategy.offload == "none" else "one rank with offload"
    sizes = tuple(level.size for level in hardware.levels)
    point = Strategy(
        strategy.param_degree,
        strategy.secondary_degree,
        strategy.grad_degree,
        strategy.optim_degree,
        quantized_weights=strategy.quantized_weights,
        quantized_gradients=strategy.quantized_gradients,
        offload=strategy.offload,
    )
    return name_of(point, systems(sizes, hardware.ranks_per_node, allow_lossy=True))


def plan_name(strategies: Sequence[PlannedStrategy], hardware: PlannedHardware) -> str:
    """Returns the distinct systems of a plan's strategies, joined: nearly always one."""
    return " + ".join(dict.fromkeys(system_name(strategy, hardware) for strategy in strategies))


def degrees_text(strategies: Sequence[PlannedStrategy]) -> str:
    """Returns the distinct degrees of a plan's strategies: `1, 32, 32`, or `32/8, 32, 32` where s is not p."""
    return " + ".join(dict.fromkeys(_degrees_text(each) for each in strategies))


def degrees_names(strategies: Sequence[PlannedStrategy]) -> str:
    """Returns what the numbers of `degrees_text` are: `p, g, o`, or `p/s, g, o` where s is not p."""
    return "p/s, g, o" if any(each.secondary_degree != each.param_degree for each in strategies) else "p, g, o"


def _degrees_text(strategy: PlannedStrategy) -> str:
    p, s = strategy.param_degree, strategy.secondary_degree
    return f"{p if s == p else f'{p}/{s}'}, {strategy.grad_degree}, {strategy.optim_degree}"


_ON_HOST: Mapping[str, str] = {
    "none": "",
    "optimizer": "; optimizer states in host memory",
    "all": "; optimizer states and parameters in host memory",
}


def sharding_text(strategy: PlannedStrategy, world_size: int) -> str:
    """Returns what is sharded over how many ranks, as a sentence without its full stop."""
    kinds = (
        ("parameters", strategy.param_degree),
        ("gradients", strategy.grad_degree),
        ("optimizer states", strategy.optim_degree),
    )
    by_degree: dict[int, list[str]] = {}
    for kind, degree in kinds:
        by_degree.setdefault(degree, []).append(kind)
    clauses = [
        f"{_listing(by_degree[degree])} {_where(degree, world_size)}" for degree in sorted(by_degree, reverse=True)
    ]
    sentence = "; ".join(clauses)
    return sentence[:1].upper() + sentence[1:] + _backward(strategy) + _ON_HOST[strategy.offload]


def _where(degree: int, world_size: int) -> str:
    if degree == 1:
        return "whole on every rank"
    return (
        f"sharded over all {degree} ranks" if degree == world_size else f"sharded over {degree} of {world_size} ranks"
    )


def _backward(strategy: PlannedStrategy) -> str:
    p, s = strategy.param_degree, strategy.secondary_degree
    if p == 1:
        return ""
    if s == p:
        return "; gathered anew in backward"
    return "; kept gathered for backward" if s == 1 else f"; a second copy over {s} ranks for backward"


def _listing(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def operation_text(operation: str, degree_from: int, degree_to: int) -> str:
    """Returns a collective and its group: `all-gather over 32`, `all-reduce between 8 and 32`."""
    group = f"over {degree_to}" if degree_from == 1 else f"between {degree_from} and {degree_to}"
    return f"{operation.replace('_', '-')} {group}"


COMPUTE_NAMES: Mapping[str, str] = {
    "forward_s": "forward",
    "backward_s": "backward",
    "recomputation_s": "recomputation",
    "update_s": "optimizer's update",
}
"""The fields of `ComputedTime` in words."""


def computed_times(predicted: Predicted, *, split: bool = True) -> tuple[tuple[str, float], ...]:
    """Returns compute by what it is for: each part in words, with its seconds; one figure where it is not split."""
    if not split or predicted.compute is None:
        return (("compute", predicted.compute_s),)
    return tuple((name, getattr(predicted.compute, field)) for field, name in COMPUTE_NAMES.items())


def num_recomputed(strategies: Sequence[PlannedStrategy]) -> int:
    """Returns how many blocks are recomputed."""
    return sum(len(strategy.blocks) for strategy in strategies if strategy.recompute == "full")


def exposed_times(predicted: Predicted) -> tuple[tuple[str, float], ...]:
    """Returns the communication that compute does not hide: each cause in words, with its seconds."""
    if predicted.exposed is None:
        return (("exposed communication", predicted.exposed_communication_s),)
    return tuple((name, getattr(predicted.exposed, field)) for field, name in CAUSE_NAMES.items())
