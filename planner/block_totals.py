"""Adds up what a per-class choice costs, from the table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from costmodels.fsdp.holds import Kind, manner_of
from planner.block_table import (
    BlockTable,
    Choice,
    GradCost,
    Held,
    ParamCost,
    SecondaryCost,
    in_order_of_manners,
)


class _Blocks(NamedTuple):
    """So many equal blocks with the costs of their strategy."""

    param: ParamCost
    grad: GradCost
    secondary: SecondaryCost
    number: int
    group: int
    """Its first block."""


_Chosen = list[_Blocks]


def block_totals(table: BlockTable, choice: Choice) -> tuple[int, int]:
    """Returns (ns of a step, bytes at its peak) of a choice."""
    chosen = _chosen(table, choice)
    rest_bytes = table.always_bytes + sum(
        (each.param.rest_bytes + each.grad.rest_bytes) * each.number for each in chosen
    )
    update_bytes = sum(each.grad.update_bytes * each.number for each in chosen)
    return _step_ns(table, choice, chosen), rest_bytes + max(_peaks(table, choice, chosen, update_bytes))


def _chosen(table: BlockTable, choice: Choice) -> _Chosen:
    found: _Chosen = []
    for group, (strategies, _) in zip(table.groups, choice, strict=True):
        params = {(each.param_degree, each.optim_degree): each for each in group.params}
        grads = {(p, each.grad_degree, each.optim_degree): each for each in group.grads for p in each.param_degrees}
        secondaries = {(each.param_degree, each.secondary_degree): each for each in group.secondaries}
        found += [
            _Blocks(
                params[each.param_degree, each.optim_degree],
                grads[each.degrees],
                secondaries[each.param_degree, each.secondary_degree],
                number,
                group.blocks[0],
            )
            for each, number in strategies
        ]
    return found


def _step_ns(table: BlockTable, choice: Choice, chosen: _Chosen) -> int:
    def total(value: Callable[[_Blocks], int]) -> int:
        return sum(value(each) * each.number for each in chosen)

    def longest(value: Callable[[_Blocks], int]) -> int:
        return max(value(each) for each in chosen)

    times = table.shape.num_micro_batches
    again = [(group.again, number) for group, (_, number) in zip(table.groups, choice, strict=True)]
    again_ns, again_hidden_ns = (
        sum(each.duration_ns * number for each, number in again),
        sum(each.overlappable_ns * number for each, number in again),
    )
    forward_ns, backward_ns = table.forward.duration_ns * times, (table.backward.duration_ns + again_ns) * times
    backward_hidden_ns = table.backward.overlappable_ns + again_hidden_ns
    gathers_ns = total(lambda b: b.param.forward.bare_ns) + longest(lambda b: b.param.forward.longest_ns)
    reductions_ns = total(lambda b: b.secondary.backward.bare_ns + b.grad.reduced.bare_ns)
    reductions_ns += longest(lambda b: b.grad.reduced.longest_ns)
    forward_bounds = (
        total(lambda b: b.param.forward.duration_ns + b.param.spread.duration_ns)
        - table.forward.overlappable_ns * times,
        gathers_ns + total(lambda b: b.param.spread.bare_ns) + longest(lambda b: b.param.spread.longest_ns),
        gathers_ns + total(lambda b: b.param.spread.duration_ns) - table.forward.overlappable_ns,
    )
    backward_bounds = (
        total(lambda b: b.secondary.backward.duration_ns + b.grad.reduced.duration_ns + b.grad.boundary.duration_ns)
        - backward_hidden_ns * times,
        reductions_ns + total(lambda b: b.grad.boundary.bare_ns) + longest(lambda b: b.grad.boundary.longest_ns),
        reductions_ns + total(lambda b: b.grad.boundary.duration_ns) - backward_hidden_ns,
    )
    optimizers_ns = total(lambda b: b.param.optimizer_ns)
    return forward_ns + max(forward_bounds) + backward_ns + max(backward_bounds) + optimizers_ns + table.control_ns


def _peaks(table: BlockTable, choice: Choice, chosen: _Chosen, update_bytes: int) -> Iterator[int]:
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
    most = _most_apart(chosen)
    all_recomputed = all(recomputed[block] for group in table.groups if group.recomputable for block in group.blocks)

    def held_bytes(held: Held) -> int:
        of_blocks = sum(
            term.by_manner[manners[term.block]] + term.if_recomputed * recomputed[term.block] for term in held.terms
        )
        of_groups = sum(most.get((group, kind), 0) * times for group, kind, times in held.apart)
        return held.constant + of_blocks + of_groups + held.if_all_recomputed * all_recomputed

    alive_bytes = 0
    for stretch in table.stretches:
        alive_bytes += held_bytes(stretch.change)
        for moment in stretch.moments:
            yield alive_bytes + held_bytes(moment)
    yield from (held_bytes(moment) for moment in table.closing)
    yield update_bytes + held_bytes(table.updating)


def _most_apart(chosen: _Chosen) -> dict[tuple[int, Kind], int]:
    """Returns the most that blocks of each group hold apart of each kind."""
    most: dict[tuple[int, Kind], int] = {}
    for each in chosen:
        for kind, num_bytes in (*each.param.apart, *each.grad.apart, *each.secondary.apart) if each.number else ():
            most[each.group, kind] = max(num_bytes, most.get((each.group, kind), 0))
    return most


def least_bytes(table: BlockTable) -> int:
    """Returns bytes that the peak of no choice is below: each block does at each moment what is least there."""
    manners = {block: len(group.manners) for group in table.groups for block in group.blocks}
    first = {block: sum(list(manners.values())[:number]) for number, block in enumerate(manners)}
    offsets = np.array(list(first.values()), dtype=np.int64)
    by_manner = np.zeros(sum(manners.values()), dtype=np.int64)
    if_recomputed = np.zeros(len(manners), dtype=np.int64)
    places = {block: number for number, block in enumerate(manners)}

    def add(held: Held, sign: int) -> int:
        for term in held.terms:
            by_manner[first[term.block] : first[term.block] + len(term.by_manner)] += sign * np.array(term.by_manner)
            if_recomputed[places[term.block]] += sign * term.if_recomputed
        return held.constant

    constant = all_recomputed = least = 0
    for stretch in table.stretches:
        constant += add(stretch.change, 1)
        all_recomputed += stretch.change.if_all_recomputed
        for moment in stretch.moments:
            moment_bytes = constant + add(moment, 1)
            moment_bytes += int(np.minimum.reduceat(by_manner, offsets).sum() + np.minimum(if_recomputed, 0).sum())
            least = max(least, moment_bytes + min(0, all_recomputed + moment.if_all_recomputed))
            add(moment, -1)
    states_bytes = sum(
        len(group.blocks)
        * (min(each.rest_bytes for each in group.params) + min(each.rest_bytes for each in group.grads))
        for group in table.groups
    )
    return table.always_bytes + states_bytes + least
