"""Plans do not depend on what else the process does, nor on how Python hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from transformer_graph import SMALL, transformer_graph

from hw_profiles.load import load
from planner import Job, Plan, plan
from planner.model_graph import ModelGraph

GRAPH = transformer_graph(replace(SMALL, num_layers=2), num_classes=2)
JOBS = [
    (machine, num_nodes, Job(global_batch_size=batch, recompute=recompute))
    for machine, num_nodes, batch, recompute in (
        ("dgx-a100-80gb", 1, 64, "auto"),
        ("dgx-a100-80gb", 4, 256, "none"),
        ("dgx-h100", 1, 64, "full"),
        ("dgx-h100", 4, 256, "auto"),
        ("frontier-mi250x", 2, 256, "auto"),
        ("p4d-a100-40gb", 4, 128, "auto"),
        ("gb200-nvl72", 2, 144, "none"),
        ("mi300x-8", 2, 256, "auto"),
    )
]

COLD = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

sys.path.insert(0, sys.argv[2])
from planner.model_graph import ModelGraph
from test_threads import JOBS, planned

graph = ModelGraph.model_validate_json(Path(sys.argv[1]).read_text())
if sys.argv[3] == "threads":
    barrier = Barrier(len(JOBS))
    with ThreadPoolExecutor(len(JOBS)) as pool:
        texts = list(pool.map(lambda job: (barrier.wait(), planned(graph, *job))[1], JOBS))
else:
    texts = [planned(graph, *job) for job in JOBS]
print("\\n".join(texts))
"""
"""Plans in a new process, where nothing is imported, lowered or kept yet."""


def planned(graph: ModelGraph, machine: str, num_nodes: int, job: Job) -> str:
    answer: Plan = plan(graph, load(machine, num_nodes), job)
    return answer.model_copy(update={"solver": answer.solver.model_copy(update={"wall_s": 0.0})}).model_dump_json()


@pytest.fixture(scope="module")
def in_turn() -> list[str]:
    return [planned(GRAPH, *job) for job in JOBS]


def test_eight_jobs_in_threads_give_the_plans_that_they_give_in_turn(in_turn: list[str]) -> None:
    assert len(set(in_turn)) == len(JOBS)
    barrier = Barrier(len(JOBS))

    def at_once(job: tuple[str, int, Job]) -> str:
        barrier.wait()
        return planned(GRAPH, *job)

    with ThreadPoolExecutor(len(JOBS)) as pool:
        assert list(pool.map(at_once, JOBS)) == in_turn


@pytest.mark.parametrize(("how", "seed"), [("threads", "1"), ("turn", "2")])
def test_a_new_process_gives_the_same_bytes_whatever_its_hashes(
    in_turn: list[str], how: str, seed: str, tmp_path: Path
) -> None:
    saved = tmp_path / "graph.json"
    saved.write_text(GRAPH.model_dump_json())
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", COLD, str(saved), str(Path(__file__).parent), how]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == in_turn


MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.1)) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


def net(micro_batch_size, width=64):
    return Net(int(width)), {"x": torch.randn(micro_batch_size, int(width))}
"""


def test_models_traced_in_threads_give_the_plans_that_they_give_in_turn(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    spec = f"{tmp_path}/net.py:net"
    jobs = [("dgx-a100-80gb", 1, Job(global_batch_size=batch, precision="bf16")) for batch in (8, 16, 24)]

    def traced(job: tuple[str, int, Job]) -> str:
        answer = plan(spec, load(job[0], job[1]), job[2])
        return answer.model_copy(update={"solver": answer.solver.model_copy(update={"wall_s": 0.0})}).model_dump_json()

    turn = [traced(job) for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        assert list(pool.map(traced, jobs)) == turn
