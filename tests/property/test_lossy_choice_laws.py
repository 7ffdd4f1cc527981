"""Quantized messages in the table of per-class choices: its totals are what is predicted, and none is slower."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from block_cases import BlockCase, block_cases
from hand_workload import one_block
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.degrees import strategies
from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.strategy import StepShape, Strategy
from planner.block_table import BlockTable, Choice, GroupChoice, strategies_of
from planner.block_totals import block_totals
from planner.estimate_blocks import estimate_blocks
from planner.lossy_choice import EXACT, Lossy
from planner.machine import Machine

LOSSY = st.sampled_from([Lossy(weights=True), Lossy(gradients=True), Lossy(weights=True, gradients=True)])


def on_nodes(case: BlockCase) -> BlockCase:
    """Returns the case with the innermost level as its nodes, and memory beside which its links are slow."""
    machine = replace(case.machine, speed=replace(case.machine.speed, memory_bytes_per_s=1e13))
    return replace(case, machine=machine, shape=replace(case.shape, ranks_per_node=machine.ranks_per_node))


def table_of(case: BlockCase, lossy: Lossy) -> BlockTable:
    (table,) = estimate_blocks(case.workload, case.machine, (case.shape,), case.may_recompute, lossy=lossy)
    return table


def uniform_choice(table: BlockTable, case: BlockCase, random: Random) -> Choice:
    """Returns one strategy for all blocks of each group."""
    space = strategies(case.machine.level_sizes)
    return tuple(
        GroupChoice(
            ((random.choice(space) if group.has_params else Strategy(1, 1, 1, 1), len(group.blocks)),),
            random.randint(group.least_recomputed, group.most_recomputed),
        )
        for group in table.groups
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(block_cases(), LOSSY, st.randoms(use_true_random=False))
def test_the_table_has_the_costs_of_quantized_messages(case: BlockCase, lossy: Lossy, random: Random) -> None:
    case = on_nodes(case)
    table = table_of(case, lossy)
    choice = uniform_choice(table, case, random)
    chosen = strategies_of(table, choice)
    assert FSDP.refusal(case.workload, tuple(chosen.values())[:1] * case.workload.num_classes, case.shape) is None
    assert block_totals(table, choice) == case.costs(chosen)
    for strategy in chosen.values():
        assert lossy.weights or not strategy.quantized_weights
        assert lossy.gradients or not strategy.quantized_gradients


@settings(max_examples=40, deadline=None, derandomize=True)
@given(block_cases(), LOSSY, st.randoms(use_true_random=False))
def test_what_is_quantized_is_so_because_it_is_faster(case: BlockCase, lossy: Lossy, random: Random) -> None:
    """For the same degrees; kept for backward, as one flag stands for the gathers of both phases."""
    case = on_nodes(case)
    table, exact = table_of(case, lossy), table_of(case, EXACT)
    choice = tuple(
        GroupChoice(((replace(each.strategies[0][0], secondary_degree=1), each.strategies[0][1]),), each.num_recomputed)
        for each in uniform_choice(table, case, random)
    )
    chosen = strategies_of(table, choice).values()
    changed = any(each.quantized_weights or each.quantized_gradients for each in chosen)
    lossy_ns, exact_ns = block_totals(table, choice)[0], block_totals(exact, choice)[0]
    assert lossy_ns <= exact_ns
    assert changed or lossy_ns == exact_ns


@pytest.mark.parametrize(("link_bytes_per_s", "quantized"), [(1e9, True), (1e12, False)])
def test_slow_links_are_worth_quantizing_for_and_fast_ones_are_not(link_bytes_per_s: float, quantized: bool) -> None:
    """Converting reads and writes some 9 bytes a gathered element, which int8 saves one of; 110 a reduced one."""
    levels = (NetworkLevel(2, link_bytes_per_s, 0.0), NetworkLevel(2, link_bytes_per_s, 0.0))
    machine = Machine(Network(levels), DeviceSpeed(1e14, 1e12, 1e-6, 0.5), 1e14, 10**12, 2)
    shape = StepShape(4, 1, 1, "bf16", "adamw", ranks_per_node=2)
    (table,) = estimate_blocks(one_block(2**20), machine, (shape,), (False,), lossy=Lossy(True, True))
    (group,) = table.groups
    for param in group.params:
        assert param.quantized == (quantized and param.param_degree > 1)
    for grad in group.grads:
        assert grad.quantized == (quantized and grad.grad_degree > 1)
    exact = estimate_blocks(one_block(2**20), machine, (shape,), (False,))[0].groups[0]
    assert not any(each.quantized for each in (*exact.params, *exact.grads))
