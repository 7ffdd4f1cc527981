"""What is chosen for one saved model on each shipped kind of machine, as recorded; RECORD_GOLDEN=1 records anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hw_profiles.load import load
from planner import Job, Plan, plan
from planner.model_graph import ModelGraph

GOLDEN = Path(__file__).parent / "plan"


def choices(answer: Plan) -> str:
    """Returns the chosen strategy and its rivals, with three significant digits of what they cost."""
    job = answer.job
    lines = [f"{answer.hardware.name}, {answer.hardware.world_size} ranks, {answer.solver.num_strategies} strategies"]
    lines.append(f"global batch {job.global_batch_size} = {job.micro_batch_size} x {job.num_micro_batches} x ranks")
    for other in answer.alternatives:
        recompute = sorted({strategy.recompute for strategy in other.strategies})
        lines.append(
            f"{other.name} | {other.engine} | micro-batch {other.micro_batch_size} | recompute {'/'.join(recompute)} | "
            f"{other.step_s * 1e3:.3g} ms | {other.peak_bytes / 2**20:.3g} MiB"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("machine", "num_nodes", "memory_budget_bytes"),
    [("dgx-a100-80gb", 1, None), ("dgx-a100-80gb", 8, None), ("p4d-a100-40gb", 4, 10**9), ("frontier-mi250x", 2, None)],
)
def test_the_choice_is_as_recorded(machine: str, num_nodes: int, memory_budget_bytes: int | None) -> None:
    graph = ModelGraph.model_validate_json((GOLDEN / "graph.json").read_text(encoding="utf-8"))
    job = Job(global_batch_size=512, memory_budget_bytes=memory_budget_bytes)
    seen = choices(plan(graph, load(machine, num_nodes), job))
    path = GOLDEN / f"{machine}_{num_nodes}.txt"
    if os.environ.get("RECORD_GOLDEN") == "1":
        path.write_text(seen, encoding="utf-8")
    assert seen == path.read_text(encoding="utf-8")
