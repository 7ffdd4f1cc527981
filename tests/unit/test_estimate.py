"""The cost table holds exactly what the cost models say, for every choice in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.degrees import strategies
from costmodels.engine import Engine
from costmodels.fsdp import FSDP
from costmodels.memory import step_memory
from costmodels.step import step_time
from costmodels.strategy import StepShape, Strategy
from hw_profiles.load import load
from planner.choices import MAX_GROUPS
from planner.cost_table import CostTable
from planner.estimate import estimate
from planner.machine import Machine, machine

SHAPES = (StepShape(16, 1, 4), StepShape(16, 4, 1))
TINY = replace(SMALL, num_layers=6)


@pytest.fixture(scope="module")
def two_nodes() -> Machine:
    return machine(load("dgx-a100-80gb", 2), "bf16")


def table(num_classes: int, engine: Engine, where: Machine, recompute: str = "auto") -> CostTable:
    workload = transformer_graph(TINY, num_classes=num_classes).workload
    space = strategies(where.level_sizes) if engine is DEEPSPEED else (Strategy(2, 2, 8, 16), Strategy(8, 1, 8, 8))
    return estimate(workload, engine, where, space, SHAPES, recompute, 10**12)


@pytest.mark.parametrize("engine", [DEEPSPEED, FSDP], ids=["deepspeed", "fsdp"])
@pytest.mark.parametrize("num_classes", [1, 3])
def test_every_total_is_the_exact_one(engine: Engine, num_classes: int, two_nodes: Machine) -> None:
    workload = transformer_graph(TINY, num_classes=num_classes).workload
    costs = table(num_classes, engine, two_nodes)
    assert costs.options
    for option in costs.options:
        for recomputed in option.recomputations():
            assignment = costs.assignment(option.strategy, recomputed)
            messages = engine.traffic(workload, assignment, option.shape)
            time = step_time(workload, messages, assignment, option.shape, two_nodes.network, two_nodes.speed)
            held = engine.memory(workload, assignment, option.shape)
            assert option.step_ns(recomputed) == time.step_ns
            assert option.peak_bytes(recomputed) == step_memory(workload, held, assignment, option.shape).peak_bytes


def test_every_recomputation_of_every_legal_strategy_is_in_the_table_once(two_nodes: Machine) -> None:
    costs = table(2, DEEPSPEED, two_nodes)
    choices = [
        (option.strategy, option.shape, recomputed)
        for option in costs.options
        for recomputed in option.recomputations()
    ]
    # On 2 nodes of 8: stages 0 to 2, stage 3 gathered anew or kept, and hpZ of 2, 4 and 8.
    assert len(choices) == len(set(choices)) == costs.num_strategies == 8 * len(SHAPES) * 4


@pytest.mark.parametrize(("recompute", "values"), [("none", (False,)), ("full", (True,)), ("auto", (False, True))])
def test_recomputation_is_what_the_job_allows(recompute: str, values: tuple[bool, ...], two_nodes: Machine) -> None:
    costs = table(1, DEEPSPEED, two_nodes, recompute)
    seen = {recomputed for option in costs.options for recomputed in option.recomputations()}
    assert seen == {(value,) for value in values}


def test_more_classes_than_booleans_share_the_last_one(two_nodes: Machine) -> None:
    costs = table(MAX_GROUPS + 2, FSDP, two_nodes)
    assert costs.groups == ((1,), (2,), (3,), (4, 5, 6))
    assignment = costs.assignment(Strategy(1, 1, 1, 1), (False, False, False, True))
    assert [strategy.recompute for strategy in assignment] == ["none"] * 4 + ["full"] * 3 + ["none"]
