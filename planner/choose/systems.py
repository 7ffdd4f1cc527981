"""The published systems as points of the search space, each under the name that people know it by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from costmodels.degrees import why_illegal
from costmodels.strategy import Strategy


@dataclass(frozen=True, slots=True)
class System:
    """A named strategy, the same for all blocks, and the engine that has it."""

    name: str
    engine: Literal["deepspeed", "fsdp"]
    strategy: Strategy

    @property
    def is_lossy(self) -> bool:
        """Whether it sends other numbers than it has."""
        return self.strategy.quantized_weights or self.strategy.quantized_gradients


def systems(
    level_sizes: tuple[int, ...], ranks_per_node: int, *, allow_lossy: bool = False, offload: bool = False
) -> tuple[System, ...]:
    """Returns the systems that differ on this machine, least sharded first; the first name of equal ones stays.

    Args:
        level_sizes: the sizes of the machine's levels, inner first.
        ranks_per_node: ranks of one node.
        allow_lossy: also those that send other numbers than they have.
        offload: also those that keep states in host memory.

    Source: ZeRO (arXiv 1910.02054), ZeRO-Offload (2101.06840), ZeRO-Infinity (2104.07857), ZeRO++ (2306.10209), MiCS
    (2205.00119), PaRO (2310.06003) and the three-level partition on Frontier (2501.04266); "node" in each is one
    node's ranks.
    """
    world_size = 1
    for size in level_sizes:
        world_size *= size
    node, inner = ranks_per_node, min(2, level_sizes[0])
    candidates = (
        System("DDP", "deepspeed", Strategy(1, 1, 1, 1)),
        System("ZeRO-1", "deepspeed", Strategy(1, 1, 1, world_size)),
        System("ZeRO-2", "deepspeed", Strategy(1, 1, world_size, world_size)),
        System("ZeRO-3", "deepspeed", Strategy(world_size, world_size, world_size, world_size)),
        System("ZeRO-3, kept for backward", "deepspeed", Strategy(world_size, 1, world_size, world_size)),
        System(f"ZeRO++ hpZ of {node}", "deepspeed", Strategy(world_size, node, world_size, world_size)),
        System(f"MiCS, HSDP of {node}", "fsdp", Strategy(node, node, node, node)),
        System(f"hybrid ZeRO-2 of {node}", "fsdp", Strategy(1, 1, node, node)),
        System(f"PaRO NIG of {node}", "fsdp", Strategy(1, 1, node, world_size)),
        System(f"PaRO IIG of {node}", "fsdp", Strategy(node, node, node, world_size)),
        System(f"PaRO ING of {node}", "fsdp", Strategy(node, node, 1, world_size)),
        System(f"PaRO IGG of {node}", "fsdp", Strategy(node, node, world_size, world_size)),
        System(f"three-level of {inner}, {node}", "fsdp", Strategy(inner, inner, node, world_size)),
    )
    lossy = (
        System("ZeRO-3 with qwZ (lossy)", "deepspeed", replace(_over(world_size), quantized_weights=True)),
        System(
            f"ZeRO++ of qwZ and hpZ of {node} (lossy)",
            "deepspeed",
            replace(_over(world_size, node), quantized_weights=True),
        ),
        System(
            f"ZeRO++ of qwZ, hpZ of {node} and qgZ (lossy)",
            "deepspeed",
            replace(_over(world_size, node), quantized_weights=True, quantized_gradients=True),
        ),
    )
    on_host = (
        System("ZeRO-1 with offload", "deepspeed", Strategy(1, 1, 1, world_size, offload="optimizer")),
        System("ZeRO-2 with offload", "deepspeed", Strategy(1, 1, world_size, world_size, offload="optimizer")),
        System("ZeRO-3 with offload", "deepspeed", replace(_over(world_size), offload="optimizer")),
        System("ZeRO-3 with offload of parameters too", "deepspeed", replace(_over(world_size), offload="all")),
    )
    distinct: dict[Strategy, System] = {}
    for system in (*candidates, *(lossy if allow_lossy else ()), *(on_host if offload else ())):
        if why_illegal(system.strategy, level_sizes) is None:
            distinct.setdefault(system.strategy, system)
    return tuple(distinct.values())


def _over(world_size: int, secondary_degree: int | None = None) -> Strategy:
    return Strategy(world_size, secondary_degree or world_size, world_size, world_size)


def name_of(strategy: Strategy, known: tuple[System, ...]) -> str:
    """Returns the name of a strategy among known systems, else one made of its degrees and what it adds to them."""
    for system in known:
        if replace(system.strategy, recompute=strategy.recompute) == strategy:
            return system.name
    return " ".join((_name_of_degrees(strategy, known), *_added(strategy)))


def _name_of_degrees(strategy: Strategy, known: tuple[System, ...]) -> str:
    for system in known:
        if (
            system.strategy.degrees == strategy.degrees
            and system.strategy.secondary_degree == strategy.secondary_degree
            and not system.strategy.quantized_weights
        ):
            return system.name
    degrees = strategy.degrees
    if len(set(degrees)) == 1 and strategy.secondary_degree != strategy.param_degree:
        return f"ZeRO++ hpZ of {strategy.secondary_degree}"
    return f"degrees ({', '.join(str(degree) for degree in degrees)})"


def _added(strategy: Strategy) -> Iterator[str]:
    """Yields what a strategy has beside its degrees."""
    if strategy.offload != "none":
        yield {"optimizer": "with offload", "all": "with offload of parameters too"}[strategy.offload]
    quantized = [
        name for name, on in (("qwZ", strategy.quantized_weights), ("qgZ", strategy.quantized_gradients)) if on
    ]
    if quantized:
        yield f"with {' and '.join(quantized)} (lossy)"
