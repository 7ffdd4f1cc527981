"""What is suggested where nothing fits: the cheapest kind first, of each the smallest change, and true if followed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from transformer_graph import SMALL, transformer_graph

from costmodels.strategy import Precision
from hw_profiles.load import load
from planner import Infeasible, Job, Plan, pareto, plan
from planner.errors import DoesNotFit
from planner.model_graph import ModelGraph

KINDS = ("--recompute", "--micro-batch-size", "--offload", "--memory-budget", "--precision", "--nodes")
SHAPE = replace(SMALL, num_layers=3)
WASTEFUL = Job(
    global_batch_size=512, micro_batch_size=8, recompute="none", precision="fp32", offload="none", engine="deepspeed"
)
MACHINE = "dgx-a100-80gb"


def graph(precision: Precision = "fp32") -> ModelGraph:
    return transformer_graph(SHAPE, precision=precision)


def refused(model: ModelGraph, job: Job, num_nodes: int, machine: str = MACHINE) -> Infeasible:
    with pytest.raises(DoesNotFit) as caught:
        plan(model, load(machine, num_nodes), job)
    return caught.value.infeasible


def needed_bytes(job: Job, num_nodes: int = 2, machine: str = MACHINE, **changes: Any) -> int:
    """The least memory of any choice: the last point of the front."""
    changed = job.model_copy(update=changes)
    return pareto(graph(changed.precision), load(machine, num_nodes), changed)[-1].peak_bytes


def followed(text: str, job: Job, num_nodes: int, machine: str = MACHINE) -> list[Plan]:
    """Plans as a suggestion says, once for each global batch that it names."""
    option, value = text.split(":")[0].split()
    batches = [int(each) for each in re.findall(r"\d+", text.partition("--global-batch-size ")[2].partition("(")[0])]
    changes: dict[str, Any] = {
        "--engine": {"engine": value},
        "--recompute": {"recompute": value},
        "--micro-batch-size": {"micro_batch_size": int(value) if value.isdigit() else None},
        "--memory-budget": {"memory_budget_bytes": int(value) if value.isdigit() else None},
        "--precision": {"precision": value},
        "--offload": {"offload": value},
        "--nodes": {},
    }[option]
    nodes = int(value) if option == "--nodes" else num_nodes
    jobs = [job.model_copy(update={**changes, "global_batch_size": b}) for b in batches or [job.global_batch_size]]
    return [plan(graph(each.precision), load(machine, nodes), each) for each in jobs]


@pytest.fixture(scope="module")
def tight() -> Job:
    """A budget beyond which the job is, and within which each kind of change alone brings it."""
    variants = (
        needed_bytes(WASTEFUL, recompute="auto"),
        needed_bytes(WASTEFUL, micro_batch_size=4),
        needed_bytes(WASTEFUL, precision="bf16"),
        needed_bytes(WASTEFUL, num_nodes=4),
        needed_bytes(WASTEFUL, offload="optimizer"),
    )
    assert max(variants) < needed_bytes(WASTEFUL)
    return WASTEFUL.model_copy(update={"memory_budget_bytes": max(variants)})


def test_every_kind_is_suggested_in_the_order_of_its_cost(tight: Job) -> None:
    found = refused(graph(), tight, 2).suggestions
    assert [text.split()[0] for text in found] == ["--engine", *KINDS]


def test_each_suggestion_followed_alone_gives_a_plan(tight: Job) -> None:
    for text in refused(graph(), tight, 2).suggestions:
        for answer in followed(text, tight, 2):
            assert answer.predicted.memory.peak_bytes <= answer.predicted.memory.budget_bytes


def test_the_micro_batch_suggested_is_the_largest_that_fits() -> None:
    budget = (needed_bytes(WASTEFUL, micro_batch_size=2) + needed_bytes(WASTEFUL, micro_batch_size=4)) // 2
    job = WASTEFUL.model_copy(update={"memory_budget_bytes": budget})
    (text,) = (each for each in refused(graph(), job, 2).suggestions if each.startswith("--micro"))
    assert text.startswith("--micro-batch-size 2:")
    followed(text, job, 2)
    refused(graph(), job.model_copy(update={"micro_batch_size": 4}), 2)


def test_the_budget_suggested_is_the_least() -> None:
    job = WASTEFUL.model_copy(update={"memory_budget_bytes": 2**20})
    (text,) = (each for each in refused(graph(), job, 2).suggestions if each.startswith("--memory-budget"))
    (answer,) = followed(text, job, 2)
    budget = answer.predicted.memory.budget_bytes
    refused(graph(), job.model_copy(update={"memory_budget_bytes": budget - 1}), 2)


def test_the_nodes_suggested_are_the_fewest_and_the_batches_named_are_legal() -> None:
    job = Job(global_batch_size=80, micro_batch_size=1, precision="fp32", offload="none", engine="deepspeed")
    least = max(needed_bytes(job, num_nodes=4, global_batch_size=batch) for batch in (64, 96))
    job = job.model_copy(update={"memory_budget_bytes": least})
    (text,) = (each for each in refused(graph(), job, 2).suggestions if each.startswith("--nodes"))
    assert text.startswith("--nodes 4: 32 ranks are the fewest")
    assert "--global-batch-size 64 or 96 (80 is no multiple of 32)" in text
    assert len(followed(text, job, 2)) == 2
    for batch in (72, 96):
        refused(graph(), job.model_copy(update={"global_batch_size": batch}), 3)


def test_half_precision_is_fp16_where_the_device_has_no_bf16() -> None:
    job = Job(global_batch_size=64, precision="fp32", engine="deepspeed")
    half = needed_bytes(job, 1, "dgx2-v100-32gb", precision="fp16")
    job = job.model_copy(update={"memory_budget_bytes": half})
    found = refused(graph(), job, 1, "dgx2-v100-32gb").suggestions
    (text,) = (each for each in found if each.startswith("--precision"))
    assert text.startswith("--precision fp16:")
    followed(text, job, 1, "dgx2-v100-32gb")


def test_nothing_is_suggested_that_would_not_be_enough() -> None:
    found = refused(graph(), WASTEFUL.model_copy(update={"memory_budget_bytes": 2**20}), 2)
    assert [text.split()[0] for text in found.suggestions] == ["--memory-budget"]
