"""The Pareto front of the whole search space: the library, the JSON and the page."""

from __future__ import annotations

import io
import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from transformer_graph import LLAMA_70B, SMALL, transformer_graph

import cli
from hw_profiles.load import load
from planner import Job, ParetoPoint, Plan, pareto, plan
from planner.errors import DoesNotFit, InputError
from planner.pipeline import plan_and_pareto
from planner.report.pareto import pareto_page
from planner.report.scatter import Mark, Scatter

GRAPH, MACHINE = transformer_graph(SMALL, num_classes=2), load("dgx-a100-80gb", 2)
JOB = Job(global_batch_size=64, engine="deepspeed")


@pytest.fixture(scope="module")
def points() -> tuple[ParetoPoint, ...]:
    return pareto(GRAPH, MACHINE, JOB)


def lines_of(content: object, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, markup=False, emoji=False).print(content)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_each_point_is_slower_and_smaller_than_the_one_before(points: tuple[ParetoPoint, ...]) -> None:
    assert len(points) > 3
    for faster, smaller in pairwise(points):
        assert faster.step_s < smaller.step_s
        assert faster.peak_bytes > smaller.peak_bytes


def test_the_first_point_within_any_budget_is_the_plan_for_it(points: tuple[ParetoPoint, ...]) -> None:
    """A point is by the bound, of whole classes, as the plan's proof is; the plan may be played, or recompute less."""
    for point in points[:: len(points) // 5]:
        chosen = plan(GRAPH, MACHINE, JOB.model_copy(update={"memory_budget_bytes": point.peak_bytes}))
        assert chosen.solver.objective_s == point.step_s
        if chosen.solver.decided_by in ("simulation", "blocks"):
            continue
        assert (chosen.strategies, chosen.job.micro_batch_size) == (point.strategies, point.micro_batch_size)
        assert (chosen.predicted.step_s, chosen.predicted.memory.peak_bytes) == (point.step_s, point.peak_bytes)
        assert chosen.alternatives[0].name == point.name


def test_less_than_the_last_point_fits_nothing(points: tuple[ParetoPoint, ...]) -> None:
    with pytest.raises(DoesNotFit) as caught:
        plan(GRAPH, MACHINE, JOB.model_copy(update={"memory_budget_bytes": points[-1].peak_bytes - 1}))
    assert caught.value.infeasible.needed_bytes == points[-1].peak_bytes


def test_the_budget_does_not_change_the_front(points: tuple[ParetoPoint, ...]) -> None:
    assert pareto(GRAPH, MACHINE, JOB.model_copy(update={"memory_budget_bytes": 2**20})) == points


def test_a_front_and_a_limit_of_seconds_are_refused_together() -> None:
    with pytest.raises(InputError, match="either --pareto or --solve-time-limit"):
        pareto(GRAPH, MACHINE, JOB.model_copy(update={"solve_time_limit_s": 5.0}))


def test_the_front_of_70b_on_64_nodes_takes_seconds() -> None:
    graph = transformer_graph(LLAMA_70B)
    started_s = time.perf_counter()
    found = pareto(graph, load("dgx-h100", 64), Job(global_batch_size=1024))
    assert len(found) > 3
    assert time.perf_counter() - started_s < 30  # busy machines included; docs/solve_growth.md has a quiet one's


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("graph") / "graph.json"
    path.write_text(GRAPH.model_dump_json())
    machine = ["--hardware", "dgx-a100-80gb", "--nodes", "2"]
    return ["plan", str(path), *machine, "--global-batch-size", "64", "--engine", "deepspeed"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert cli.answer(list(arguments)) == 0
    return capsys.readouterr().out


def test_json_is_the_plan_as_always_with_one_key_more(
    command: list[str], points: tuple[ParetoPoint, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    usual = json.loads(printed(capsys, *command, "--json"))
    document = json.loads(printed(capsys, *command, "--pareto", "--json"))
    assert [*document] == [*usual, "pareto"]
    assert document.pop("pareto") == [json.loads(point.model_dump_json()) for point in points]
    for each in (usual, document):
        each["solver"].pop("wall_s")
    assert document == usual


def test_a_folder_holds_the_plan_without_the_front(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(capsys, *command, "--pareto", "--out", str(tmp_path / "plan"))
    assert "pareto" not in json.loads((tmp_path / "plan" / "plan.json").read_text())
    printed(capsys, "explain", str(tmp_path / "plan"))


@pytest.fixture(scope="module")
def tight(points: tuple[ParetoPoint, ...]) -> tuple[Plan, tuple[ParetoPoint, ...]]:
    budget = points[1].peak_bytes
    return plan_and_pareto(GRAPH, MACHINE, JOB.model_copy(update={"memory_budget_bytes": budget}))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_marks_the_chosen_the_fitting_and_those_beyond_within_its_width(
    tight: tuple[Plan, tuple[ParetoPoint, ...]], width: int
) -> None:
    lines = lines_of(pareto_page(*tight), width)
    assert max(map(len, lines)) <= width
    marks = [line.split()[0] for line in lines if line.split() and line.split()[0] in ("*", "o", "x")]
    num_fitting = len(tight[1]) - 2
    legend = ["*"]
    assert marks == ["x", "*", *["o"] * num_fitting, *legend]


def test_the_plot_has_every_mark_at_its_place_and_the_wall() -> None:
    marks = (Mark(10, 4, "x"), Mark(100, 2, "*"), Mark(1000, 1, "o"))
    scatter = Scatter(marks, wall=100, across=lambda amount: f"{amount:g} B", upward=lambda amount: f"{amount:g} s")
    lines = lines_of(scatter, 47)
    assert lines[0] == "4 s |x" + " " * 19 + ":"
    assert lines[11] == "1 s |" + " " * 20 + ":" + " " * 20 + "o"
    assert lines[12] == "    +" + "-" * 42
    assert lines[13] == "     10 B" + " " * 32 + "1000 B"
    (middle,) = [line for line in lines if "*" in line]
    assert middle.index("*") == lines[0].index(":")
