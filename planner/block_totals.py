"""Adds up what a per-class choice costs, from the table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from costmodels.fsdp.holds import manner_of
from planner.block_table import (
    BlockTable,
    Choice,
    DegreesCost,
    Held,
    SecondaryCost,
    in_order_of_manners,
)

_Chosen = list[tuple[DegreesCost, SecondaryCost, int]]


def block_totals(table: BlockTable, choice: Choice) -> tuple[int, int]:
    """Returns (ns of a step, bytes at its peak) of a choice."""
    chosen = _chosen(table, choice)
    rest_bytes = table.always_bytes + sum(
        (degrees.rest_bytes + secondary.rest_bytes) * number for degrees, secondary, number in chosen
    )
    update_bytes = sum(degrees.update_bytes * number for degrees, _, number in chosen)
    update_bytes += max(degrees.spread_bytes for degrees, _, _ in chosen)
    output_bytes = max(degrees.output_bytes for degrees, _, _ in chosen)
    return _step_ns(table, choice, chosen), rest_bytes + max(update_bytes, *_peaks(table, choice, output_bytes))


def _chosen(table: BlockTable, choice: Choice) -> _Chosen:
    found: _Chosen = []
    for group, (strategies, _) in zip(table.groups, choice, strict=True):
        degrees = {(each.param_degree, each.grad_degree, each.optim_degree): each for each in group.degrees}
        secondaries = {(each.param_degree, each.secondary_degree): each for each in group.secondaries}
        found += [
            (degrees[each.degrees], secondaries[each.param_degree, each.secondary_degree], number)
            for each, number in strategies
        ]
    return found


def _step_ns(table: BlockTable, choice: Choice, chosen: _Chosen) -> int:
    def total(value: Callable[[DegreesCost, SecondaryCost], int]) -> int:
        return sum(value(degrees, secondary) * number for degrees, secondary, number in chosen)

    def longest(value: Callable[[DegreesCost], int]) -> int:
        return max(value(degrees) for degrees, _, _ in chosen)

    times = table.shape.num_micro_batches
    again = [(group.again, number) for group, (_, number) in zip(table.groups, choice, strict=True)]
    again_ns, again_hidden_ns = (
        sum(each.duration_ns * number for each, number in again),
        sum(each.overlappable_ns * number for each, number in again),
    )
    forward_ns, backward_ns = table.forward.duration_ns * times, (table.backward.duration_ns + again_ns) * times
    backward_hidden_ns = table.backward.overlappable_ns + again_hidden_ns
    gathers_ns = total(lambda d, _: d.forward.bare_ns) + longest(lambda d: d.forward.longest_ns)
    reductions_ns = total(lambda d, s: s.backward.bare_ns + d.reduced.bare_ns) + longest(lambda d: d.reduced.longest_ns)
    forward_bounds = (
        total(lambda d, _: d.forward.duration_ns + d.spread.duration_ns) - table.forward.overlappable_ns * times,
        gathers_ns + total(lambda d, _: d.spread.bare_ns) + longest(lambda d: d.spread.longest_ns),
        gathers_ns + total(lambda d, _: d.spread.duration_ns) - table.forward.overlappable_ns,
    )
    backward_bounds = (
        total(lambda d, s: s.backward.duration_ns + d.reduced.duration_ns + d.boundary.duration_ns)
        - backward_hidden_ns * times,
        reductions_ns + total(lambda d, _: d.boundary.bare_ns) + longest(lambda d: d.boundary.longest_ns),
        reductions_ns + total(lambda d, _: d.boundary.duration_ns) - backward_hidden_ns,
    )
    optimizers_ns = total(lambda d, _: d.optimizer_ns)
    return forward_ns + max(forward_bounds) + backward_ns + max(backward_bounds) + optimizers_ns


def _peaks(table: BlockTable, choice: Choice, output_bytes: int) -> Iterator[int]:
    manners: dict[int, int] = {}
    recomputed: dict[int, bool] = {}
    for group, (strategies, num_recomputed) in zip(table.groups, choice, strict=True):
        numbers = [
            group.manners.index(manner_of(each))
            for each, number in in_order_of_manners(strategies)
            for _ in range(number)
        ]
        manners.update(zip(group.blocks, numbers, strict=True))
        recomputed.update({block: number < num_recomputed for number, block in enumerate(group.blocks)})
    all_recomputed = all(recomputed[block] for group in table.groups if group.recomputable for block in group.blocks)

    def held_bytes(held: Held) -> int:
        of_blocks = sum(
            term.by_manner[manners[term.block]] + term.if_recomputed * recomputed[term.block] for term in held.terms
        )
        return held.constant + of_blocks + held.if_all_recomputed * all_recomputed

    alive_bytes = 0
    for stretch in table.stretches:
        alive_bytes += held_bytes(stretch.change)
        for moment in stretch.moments:
            yield alive_bytes + held_bytes(moment) + output_bytes * stretch.is_backward
