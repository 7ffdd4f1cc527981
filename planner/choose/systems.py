"""The published systems as points of the search space, each under the name that people know it by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodels.degrees import why_illegal
from costmodels.strategy import Strategy


@dataclass(frozen=True, slots=True)
class System:
    """A named strategy, the same for all blocks, and the engine that has it."""

    name: str
    engine: Literal["deepspeed", "fsdp"]
    strategy: Strategy


def systems(level_sizes: tuple[int, ...], ranks_per_node: int) -> tuple[System, ...]:
    """Returns the systems that differ on this machine, least sharded first; the first name of equal ones stays.

    Source: ZeRO (arXiv 1910.02054), ZeRO++ (2306.10209), MiCS (2205.00119), PaRO (2310.06003) and the three-level
    partition on Frontier (2501.04266); "node" in each is one node's ranks.
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
        System(f"PaRO IGG of {node}", "fsdp", Strategy(node, node, world_size, world_size)),
        System(f"three-level of {inner}, {node}", "fsdp", Strategy(inner, inner, node, world_size)),
    )
    distinct: dict[Strategy, System] = {}
    for system in candidates:
        if why_illegal(system.strategy, level_sizes) is None:
            distinct.setdefault(system.strategy, system)
    return tuple(distinct.values())


def name_of(strategy: Strategy, known: tuple[System, ...]) -> str:
    """Returns the name of a strategy among known systems, else one made of its degrees."""
    for system in known:
        if (
            system.strategy.degrees == strategy.degrees
            and system.strategy.secondary_degree == strategy.secondary_degree
        ):
            return system.name
    degrees = strategy.degrees
    if len(set(degrees)) == 1 and strategy.secondary_degree != strategy.param_degree:
        return f"ZeRO++ hpZ of {strategy.secondary_degree}"
    return f"degrees ({', '.join(str(degree) for degree in degrees)})"
