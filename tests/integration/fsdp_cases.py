"""What the cost model says of the fsdp engine, and what its ranks record: for the tests that compare both."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fsdp_models
import torch

from costmodels.engine import Assignment, Message
from costmodels.fsdp import FSDP
from costmodels.strategy import Precision, StepShape, Strategy
from costmodels.workload import Workload
from planner.model_graph import ModelSource
from planner.trace import trace
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan
from runtime.record_memory import MemoryRecorder
from runtime.record_traffic import RecordTraffic
from runtime.weights import parameters_without_memory

RANKS = 8
SAMPLES = 2

Totals = dict[tuple[str, int, int], tuple[int, int]]
"""Bytes and messages by operation and degrees."""


@cache
def traced(model: str, precision: Precision, arguments: tuple[tuple[str, str], ...] = ()) -> Workload:
    """Returns what `plan` knows of a model of `fsdp_models`."""
    spec = f"{Path(fsdp_models.__file__)}:{model}"
    return trace(
        ModelSource(spec=spec, kind="file", arguments=dict(arguments)), precision=precision, device="cpu"
    ).workload


@dataclass(frozen=True)
class Case:
    """One strategy for each class of a model's blocks."""

    model: str
    strategies: tuple[Strategy, ...]
    """One for all classes, or one each."""
    num_micro_batches: int
    precision: Precision = "fp32"
    arguments: tuple[tuple[str, str], ...] = ()
    world_size: int = RANKS

    @property
    def workload(self) -> Workload:
        """The traced model."""
        return traced(self.model, self.precision, self.arguments)

    @property
    def assignment(self) -> Assignment:
        """A strategy of each class."""
        classes = self.workload.num_classes
        return tuple(self.strategies[number % len(self.strategies)] for number in range(classes))

    @property
    def shape(self) -> StepShape:
        """The step."""
        return StepShape(self.world_size, SAMPLES, self.num_micro_batches, self.precision, "adamw", "cpu")

    def messages(self) -> tuple[Message, ...]:
        """What the model of the engine says."""
        return FSDP.traffic(self.workload, self.assignment, self.shape)

    def plan(self) -> ShardingPlan:
        """What the ranks are given."""
        assignment = self.assignment
        strategies = tuple(
            BlockStrategy((block.name,), each.param_degree, each.secondary_degree, each.grad_degree, each.optim_degree)
            for block, each in ((block, assignment[block.block_class]) for block in self.workload.blocks)
            if block.parameters
        )
        recomputed = tuple(
            block.name
            for block in self.workload.blocks
            if block.recomputable and assignment[block.block_class].recompute == "full"
        )
        sizes = (2,) * (self.world_size.bit_length() - 1)
        return ShardingPlan(
            strategies,
            self.world_size,
            min(4, self.world_size),
            self.num_micro_batches,
            self.precision,
            sizes,
            recomputed,
        )


def totals_of(messages: Sequence[Any]) -> Totals:
    """Returns the sums of what was recorded, or predicted."""
    size: Counter[tuple[str, int, int]] = Counter()
    count: Counter[tuple[str, int, int]] = Counter()
    for each in messages:
        key = (each.operation, each.degree_from, each.degree_to)
        size[key] += each.total_bytes if isinstance(each, Message) else each.bytes
        count[key] += each.count
    return {key: (size[key], count[key]) for key in sorted(count)}


def train(case: Case, plan: ShardingPlan) -> Any:
    """Returns a function that trains one step on this rank."""
    torch.manual_seed(0)
    arguments = {name: int(value) for name, value in case.arguments}
    with parameters_without_memory():
        model, batch = getattr(fsdp_models, case.model)(SAMPLES, **arguments)
    sharded = shard(model, plan)
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-3)

    def step() -> None:
        for _ in range(plan.num_micro_batches):
            optimizer.backward(model(**batch))
        optimizer.step()

    step.sharded = sharded  # type: ignore[attr-defined]
    return step


def record_traffic(cases: Sequence[tuple[Case, ShardingPlan]]) -> list[Totals]:
    """Returns the messages of this rank in the second step of each case."""
    found = []
    for case, plan in cases:
        step = train(case, plan)
        step()
        step.sharded.synchronize()
        with RecordTraffic() as traffic:
            step()
            step.sharded.synchronize()
        found.append(totals_of(traffic.totals()))
    return found


STEPS = 5


class RankMemory(NamedTuple):
    """Bytes of one rank."""

    init_peak_bytes: int
    steps: tuple[tuple[int, int], ...]
    """The greatest, and those at the end, of each steady step."""


def record_memory(cases: Sequence[tuple[Case, ShardingPlan]]) -> list[RankMemory]:
    """Returns the memory of this rank in each case."""
    found = []
    for case, plan in cases:
        gc.collect()
        with MemoryRecorder(torch.device("cpu")) as memory:
            step = train(case, plan)
            memory.built()
            for _ in range(STEPS):
                step()
                memory.step_ended()
            step.sharded.synchronize()
            # Freed within the recording: what is freed outside of it would be counted in the next case.
            del step
            gc.collect()
        init_peak_bytes = memory.use().init_peak_bytes
        assert init_peak_bytes is not None
        found.append(RankMemory(init_peak_bytes, memory.steps[1:]))
    return found


def fullest(ranks: Sequence[RankMemory]) -> tuple[int, int, int]:
    """Returns (peak, at rest, peak while building) of the fullest rank, each at the step where it is least.

    gloo's threads have what they sent until they are done with it, which is late on busy cores, and not in every step.
    """
    peaks, ends = (min(max(rank.steps[step][which] for rank in ranks) for step in range(STEPS - 1)) for which in (0, 1))
    return peaks, ends, max(rank.init_peak_bytes for rank in ranks)
