"""What the ideal schedule holds beside model states, and when, block by block.

Every hold depends on the strategy of one block alone, and on that only by its `Manner`; so what is held at any moment
is a sum over blocks, and a solver can choose for each block on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from costmodels.fsdp.uses import owners, uses
from costmodels.states import StateWidths, num_block_params
from costmodels.strategy import Strategy
from costmodels.workload import Workload

Gathered = Literal["anew", "kept", "whole"]
"""Parameters are gathered anew for backward, or kept from forward, or whole on every rank (p = 1)."""


class Manner(NamedTuple):
    """All of a strategy's degrees that decides what is held when; beyond that they decide how large shards are."""

    gathered: Gathered
    is_reduced: bool
    """Gradients are reduced as they come (g > 1)."""


def manner_of(strategy: Strategy) -> Manner:
    """Returns the manner of a strategy."""
    gathered: Gathered = "anew"
    if strategy.param_degree == 1:
        gathered = "whole"
    elif strategy.secondary_degree == 1:
        gathered = "kept"
    return Manner(gathered, strategy.grad_degree > 1)


@dataclass(frozen=True, slots=True)
class Hold:
    """Bytes of one block that are held from the beginning of one segment to the end of another."""

    block: int
    first: int
    last: int
    num_bytes: int
    component: Literal["gathered_parameters", "buffers"]
    gathered: Gathered | None = None
    """Held by blocks of this kind only; None: by those whose gradients are reduced as they come."""

    def holds(self, manner: Manner) -> bool:
        """Returns whether a block of this manner holds them."""
        return manner.is_reduced if self.gathered is None else manner.gathered == self.gathered


@dataclass(frozen=True, slots=True)
class Arrival:
    """The gradient of one parameter: complete in a segment, and waiting for its block's reduction where g > 1."""

    block: int
    segment: int
    number: int
    """Gradients of the segment that came before it."""
    num_bytes: int
    until: int
    """The segment at whose end the block's gradients are reduced."""


@lru_cache(maxsize=16)
def holds(workload: Workload, widths: StateWidths) -> tuple[Hold, ...]:
    """Returns all that blocks can hold: gathered parameters, and the flat input of a reduction in flight.

    A block's gather starts when the block before it in that phase begins to compute; its reduction lives until the
    next block's.
    """
    found: list[Hold] = []
    backward = {use.block: use for use in uses(workload, "backward")}
    for phase in ("forward", "backward"):
        start = None
        for use in uses(workload, phase):
            full_bytes = widths.parameter * num_block_params(workload, workload.blocks[use.block])[0]
            first = use.first if start is None else start
            found.append(Hold(use.block, first, use.last, full_bytes, "gathered_parameters", "anew"))
            if phase == "forward":
                end = backward[use.block].last if use.block in backward else use.last
                found.append(Hold(use.block, first, end, full_bytes, "gathered_parameters", "kept"))
            start = use.first
    reduced = sorted(backward.values(), key=lambda use: (use.last, use.first))
    for index, use in enumerate(reduced):
        flat_bytes = widths.gradient * num_block_params(workload, workload.blocks[use.block])[1]
        end = reduced[min(index + 1, len(reduced) - 1)].last
        found.append(Hold(use.block, use.last, end, flat_bytes, "buffers"))
    return tuple(found)


@lru_cache(maxsize=16)
def arrivals(workload: Workload, widths: StateWidths) -> tuple[Arrival, ...]:
    """Returns the gradients of a step in order of time."""
    owned_by = owners(workload)
    reduced_in = {use.block: use.last for use in uses(workload, "backward")}
    return tuple(
        Arrival(
            block=owned_by[index],
            segment=position,
            number=number,
            num_bytes=widths.gradient * workload.parameters[index].num_elements,
            until=max(position, reduced_in.get(owned_by[index], position)),
        )
        for position, segment in enumerate(workload.segments)
        for number, index in enumerate(segment.gradients)
    )
