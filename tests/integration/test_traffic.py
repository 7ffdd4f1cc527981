"""The promise "bytes exactly": what DeepSpeed is predicted to send is what its ranks are recorded sending.

Every message counts: a case fails when one has another size, another group, or comes once more or less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from deepspeed_cases import launch

from costmodels.deepspeed.knobs import Knobs, choose_knobs
from costmodels.deepspeed.traffic import traffic
from costmodels.engine import Assignment
from costmodels.strategy import Precision, StepShape, Strategy
from costmodels.workload import Workload
from planner.choose.ds_config import ds_config
from planner.model_graph import ModelSource
from planner.read.source import read_source
from planner.trace import trace

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    model: str
    point: str
    """0, 1, 2, 3: the stage. kept: stage 3 with parameters kept for backward. hpzH: a secondary partition of H."""
    num_micro_batches: int = 1
    precision: Precision = "fp32"
    recompute: bool = False
    world_size: int = 4
    knobs: tuple[tuple[str, Any], ...] = ()
    """Settings that the planner would not choose."""

    def __str__(self) -> str:
        parts = [self.model, f"stage_{self.point}", f"M{self.num_micro_batches}", self.precision]
        parts += ["recompute"] * self.recompute + [f"{name}={value}" for name, value in self.knobs]
        return "-".join(parts) + f"-{self.world_size}ranks"


def strategy(case: Case) -> Strategy:
    n = case.world_size
    degrees = {"0": (1, 1, 1, 1), "1": (1, 1, 1, n), "2": (1, 1, n, n), "3": (n, n, n, n), "kept": (n, 1, n, n)}
    if case.point.startswith("hpz"):
        degrees[case.point] = (n, int(case.point[3:]), n, n)
    return Strategy(*degrees[case.point], recompute="full" if case.recompute else "none")


def source_of(model: str) -> ModelSource:
    spec = HERE / f"tiny_{model}" if model in ("llama", "mixtral") else f"{HERE / 'traffic_models.py'}:{model}"
    return read_source(str(spec), ())


@cache
def workload_of(model: str, precision: Precision) -> Workload:
    return trace(source_of(model), precision=precision, device="cpu", sequence_length=8).workload


def planned(case: Case) -> tuple[Workload, Assignment, StepShape, Knobs]:
    workload = workload_of(case.model, case.precision)
    assignment = (strategy(case),) * workload.num_classes
    shape = StepShape(case.world_size, 2, case.num_micro_batches, case.precision, "adamw", "cpu")
    return workload, assignment, shape, replace(choose_knobs(workload, assignment, shape), **dict(case.knobs))


def record(cases: list[Case], folder: Path) -> dict[Case, list[Counter[tuple[str, int, int, int]]]]:
    """Runs the cases one after the other in the same processes, and returns each rank's messages."""
    (world_size,) = {case.world_size for case in cases}
    written = []
    for case in cases:
        workload, assignment, shape, knobs = planned(case)
        again = [block.name for block in workload.blocks if block.recomputable] if case.recompute else []
        config = ds_config(workload, assignment, shape, knobs)
        source = source_of(case.model)
        written.append({"spec": source.spec, "kind": source.kind, "config": config, "recompute": again})
    ranks = launch(HERE / "traffic_worker.py", written, folder, world_size)
    return {case: [Counter(tuple(m) for m in rank[i]) for rank in ranks] for i, case in enumerate(cases)}


def predicted(case: Case) -> Counter[tuple[str, int, int, int]]:
    found: Counter[tuple[str, int, int, int]] = Counter()
    for m in traffic(*planned(case)):
        found[m.operation, m.degree_from, m.degree_to, m.message_bytes] += m.count
    return found


QUICK = [
    *(Case("gpt", point, 3) for point in ("0", "1", "2", "3", "hpz2")),
    Case("gpt", "kept"),
    Case("gpt", "3", 2, "bf16", recompute=True),
    Case("llama", "hpz2", 2, "bf16"),
    Case("encoder", "2", precision="bf16", knobs=(("reduce_bucket_size", 3000),)),
    Case("gpt", "3", precision="bf16", knobs=(("reduce_bucket_size", 3000),)),
    Case("encoder", "hpz2"),
    Case("tangled", "1", 2),
    Case("tangled", "2", 2),
    Case("tangled", "hpz2", 2, recompute=True),
    Case("mixtral", "3", 2, "bf16", recompute=True),
    Case("mixture", "3", 2, "bf16", recompute=True),
    Case("mixture", "hpz2"),
    Case("perceptron", "3", knobs=(("param_persistence_threshold", 200), ("sub_group_size", 1500))),
]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, list[Counter[tuple[str, int, int, int]]]]:
    return record(QUICK, tmp_path_factory.mktemp("quick"))


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_predicted_messages_are_those_recorded(case: Case, quick: dict[Case, list[Counter[Any]]]) -> None:
    for rank in quick[case]:
        assert rank == predicted(case)


def matrix() -> Iterator[list[Case]]:
    points = ("0", "1", "2", "3", "kept", "hpz2")
    models = ("gpt", "encoder", "perceptron", "llama", "tangled", "mixtral", "mixture")
    for precision in ("fp32", "bf16"):
        yield [Case(model, point, m, precision) for model in models for point in points for m in (1, 3)]
    yield [Case(model, point, 2, "bf16", recompute=True) for model in models for point in points]
    odd = ("0", "1", "2", "3", "kept")
    yield [Case(model, point, 2, "bf16", world_size=3) for model in models for point in odd]
    eight = ("1", "2", "3", "hpz2", "hpz4")
    yield [Case(model, point, 2, world_size=8) for model in models for point in eight]
    yield list(unusual())


def unusual() -> Iterator[Case]:
    """Settings that users bring."""
    small = ("reduce_bucket_size", 2500)
    for model in ("gpt", "encoder"):
        for point in ("1", "2"):
            yield Case(model, point, 2, knobs=(small, ("use_multi_rank_bucket_allreduce", False)))
            yield Case(model, point, 2, knobs=(small, ("reduce_scatter", False)))
            yield Case(model, point, 2, knobs=(small, ("overlap_comm", True)))
            yield Case(model, point, 2, "bf16", knobs=(("compute_grad_norm", False), ("check_grad_overflow", False)))
    yield Case("gpt", "3", 2, knobs=(small, ("reduce_scatter", False)))
    for model in ("gpt", "encoder", "perceptron"):
        yield Case(model, "3", 2, knobs=(("prefetch_bucket_size", 0),))
        yield Case(model, "3", 2, knobs=(("prefetch_bucket_size", 700), ("max_live_parameters", 4000)))
        yield Case(model, "3", 2, knobs=(("max_reuse_distance", 3000), ("param_persistence_threshold", 100)))
        yield Case(model, "3", 5, knobs=(("max_live_parameters", 10**9), ("max_reuse_distance", 10**9)))
        yield Case(model, "hpz2", 2, knobs=(("param_persistence_threshold", 100),), recompute=True)


@pytest.mark.slow
@pytest.mark.parametrize("cases", list(matrix()), ids=lambda cases: f"{cases[-1]}")
def test_the_whole_matrix_is_as_recorded(cases: list[Case], tmp_path: Path) -> None:
    recorded = record(cases, tmp_path)
    wrong = [str(case) for case in cases if any(rank != predicted(case) for rank in recorded[case])]
    assert not wrong
