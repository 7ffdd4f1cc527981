"""The pages that people read: complete, within the width they have, and as recorded in tests/golden/report."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hand_workload import hand_workload
from rich.console import Console, RenderableType
from sample_plan import GIB, PLAN, PROFILE, alternative, strategy

from planner.explain.compare import compare
from planner.explain.explanation import AtMicroBatch, Explanation, Line, Section
from planner.explain.rival import Rival
from planner.model_graph import ModelGraph
from planner.plan import ExposedTime, Infeasible
from planner.report.bar import Bar
from planner.report.comparison import comparison_page
from planner.report.explanation import explanation_page
from planner.report.figures import (
    bytes_in,
    bytes_text,
    bytes_unit,
    count_text,
    difference_text,
    plural,
    seconds_text,
    share_text,
)
from planner.report.graph import graph_page
from planner.report.machines import machines_table, profile_page
from planner.report.names import degrees_text, sharding_text, system_name
from planner.report.plan import plan_summary, written_to
from planner.report.run import run_page
from planner.report.sweep import sweep_table
from planner.run.run_report import RunReport, RunStep, predicted_figures

GOLDEN = Path(__file__).parents[1] / "golden" / "report"
WIDTHS = (80, 100)


def lines_of(page: RenderableType, width: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=stream, width=width, highlight=False, markup=False, emoji=False).print(page)
    stream.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


def over_budget():
    memory = PLAN.predicted.memory.model_copy(update={"budget_bytes": 20 * GIB})
    predicted = PLAN.predicted.model_copy(update={"memory": memory})
    solver = PLAN.solver.model_copy(update={"status": "FIXED"})
    warning = "this does not fit: it needs 26.00 GiB and has 20.00 GiB"
    return PLAN.model_copy(
        update={"predicted": predicted, "solver": solver, "alternatives": (), "warnings": (warning,)}
    )


def infeasible():
    return Infeasible(
        model_name="Net",
        hardware_name="dgx-a100-80gb",
        world_size=8,
        needed_bytes=90 * GIB,
        available_bytes=78 * GIB,
        nearest=alternative("ZeRO-3", (8, 8, 8), 1.0, 90, "needs 90.0 GiB"),
        suggestions=("use 2 nodes",),
    )


def kept():
    strategies = (strategy(32, 32, 32, secondary=1),)
    return PLAN.model_copy(update={"strategies": strategies})


def zero_3():
    exposed = ExposedTime(forward_s=0.04, backward_s=0.07, boundary_s=0.03, update_s=0.0, control_s=0.0)
    times = {"step_s": 0.3, "compute_s": 0.16, "exposed_communication_s": 0.14, "exposed": exposed}
    predicted = PLAN.predicted.model_copy(update=times)
    return PLAN.model_copy(update={"strategies": (strategy(32, 32, 32),), "predicted": predicted})


def rival():
    rows = ((1, 8, 0.31, 20), (4, 2, 0.30, 26), (8, 1, 0.29, 90))
    return Rival(
        zero_3(),
        micro_batches=tuple(
            AtMicroBatch(
                micro_batch_size=size,
                num_micro_batches=count,
                num_recomputed=0,
                step_s=step_s,
                peak_bytes=peak_gib * GIB,
                fits=peak_gib < 78,
            )
            for size, count, step_s, peak_gib in rows
        ),
    )


EXPLANATION = Explanation(
    sections=(
        Section(
            title="Model states of a rank",
            lines=(
                Line(
                    name="optimizer states",
                    formula="k × ⌈P / o⌉",
                    substituted="12 × ⌈1,073,741,824 / 32⌉ = 402,653,184 bytes",
                    value=402_653_184,
                    unit="bytes",
                ),
                Line(name="left of the budget", value=52 * GIB, unit="bytes"),
            ),
        ),
        Section(
            title="Time of an optimizer step",
            lines=(
                Line(name="compute", value=0.15, unit="s"),
                Line(name="throughput", formula="samples / step", value=655_360, unit="tokens/s"),
                Line(name="MFU", substituted="1 / 2", value=0.5, unit=""),
            ),
        ),
    )
)

PAGES = {
    "plan": lambda: plan_summary(PLAN),
    "plan_verbose": lambda: plan_summary(PLAN, verbose=True),
    "plan_over_budget": lambda: plan_summary(over_budget()),
    "sweep": lambda: sweep_table((infeasible(), PLAN, kept())),
    "why_not": lambda: comparison_page(compare(PLAN, rival())),
    "explanation": lambda: explanation_page(EXPLANATION),
    "machines": lambda: machines_table([PROFILE, PROFILE]),
    "profile": lambda: profile_page(PROFILE),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_are_as_recorded(name, width):
    """Set RECORD_GOLDEN=1 to record anew, and review the differences."""
    lines = lines_of(PAGES[name](), width)
    golden = GOLDEN / f"{name}_{width}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("RECORD_GOLDEN") == "1":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", (60, 80, 100, 120))
@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_stay_within_their_width_and_carry_no_colour_to_a_file(name, width):
    lines = lines_of(PAGES[name](), width)
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)


def test_bars_are_printable_in_ascii():
    lines = lines_of(Bar(1, 3, 4, track=True), 8, encoding="ascii")
    assert lines == ["  ####.."]


def test_what_is_shorter_than_a_cell_is_not_drawn_as_a_whole_one():
    assert lines_of(Bar(99.5, 100, 100), 10) == [" " * 9 + "▏"]


def test_a_step_as_fast_is_no_loss():
    tied = PLAN.alternatives[1].model_copy(update={"step_s": 0.20001})
    text = "\n".join(lines_of(plan_summary(PLAN.model_copy(update={"alternatives": (tied,)})), 100))
    assert "DDP is as fast" in text
    assert "0.0%" not in text


def test_strategies_that_differ_in_s_alone_look_different():
    texts = {degrees_text((strategy(32, 32, 32, secondary=s),)) for s in (None, 1, 8)}
    assert texts == {"32, 32, 32", "32/1, 32, 32", "32/8, 32, 32"}


def test_verdicts_are_whole_lines_on_a_narrow_screen():
    lines = lines_of(plan_summary(PLAN), 80)
    assert all(any(other.verdict in line for line in lines) for other in PLAN.alternatives[:5])


def test_files_are_offered_for_both_engines():
    for plan in (PLAN, PLAN.model_copy(update={"engine": "fsdp", "native_deepspeed": False})):
        assert "--out DIR" in "\n".join(lines_of(written_to(plan, None), 80))
        assert "Next: shardplan run" in "\n".join(lines_of(written_to(plan, Path("here")), 80))


def test_a_run_shows_what_was_measured_beside_what_was_predicted():
    predicted = predicted_figures(PLAN.predicted)
    memory = predicted.memory.model_copy(update={"peak_bytes": 27 * GIB})
    measured = predicted.model_copy(update={"step_s": 0.25, "memory": memory, "traffic": predicted.traffic[:1]})
    steps = (RunStep(loss=9.5, seconds=0.3), RunStep(loss=float("nan"), seconds=0.25))
    report = RunReport(steps=steps, measured=measured, predicted=predicted)
    rows = {line.strip().split("  ")[0]: line.split() for line in lines_of(run_page(report), 80)}
    assert rows["step time"][-5:] == ["200.0", "ms", "250.0", "ms", "+25.0%"]
    assert rows["peak memory"][-5:] == ["26.00", "GiB", "27.00", "GiB", "+3.8%"]
    assert rows["memory at rest"][-1] == rows["all-gather over 32"][-1] == "exact"
    assert rows["all-reduce over 32"][-3:] == ["0", "B", "-100.0%"]
    assert "not finite" in "\n".join(lines_of(run_page(report), 80))


@pytest.mark.parametrize("width", range(1, 40, 3))
def test_a_bar_fills_its_width_exactly_and_shows_whatever_is_there(width):
    for begin in range(11):
        for end in range(begin, 11):
            (line,) = lines_of(Bar(begin, end, 10, track=True), width)
            assert len(line) == width or end == begin == 10 or not line.strip()
            drawn = [symbol for symbol in line if symbol not in " ·"]
            assert bool(drawn) == (end > begin and begin * width // 10 < width)


def test_the_summary_has_every_number_that_decides():
    text = "\n".join(lines_of(plan_summary(PLAN), 100))
    for figure in ("(1, 1, 32)", "200.0 ms", "655,360 tokens/s", "41.2%", "26.00 GiB", "78.00 GiB", "proved fastest"):
        assert figure in text


def test_memory_components_are_listed_up_to_the_peak():
    text = "\n".join(lines_of(plan_summary(PLAN), 100))
    for name, amount in PLAN.predicted.memory.components:
        assert (name.replace("_", " ") in text) == (amount > 0)


def test_what_runs_is_listed_before_what_does_not_and_the_rest_only_when_asked():
    short, long = (lines_of(plan_summary(PLAN, verbose=verbose), 100) for verbose in (False, True))
    assert any("2 more with --verbose" in line for line in short)
    assert not any("huge" in line for line in short)
    order = [next(i for i, line in enumerate(long) if name in line) for name in ("ZeRO-3 ", "MiCS", "huge")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("degrees", "secondary", "name"),
    [
        ((1, 1, 1), None, "DDP"),
        ((1, 1, 32), None, "ZeRO-1"),
        ((1, 32, 32), None, "ZeRO-2"),
        ((32, 32, 32), None, "ZeRO-3"),
        ((32, 32, 32), 1, "ZeRO-3, kept for backward"),
        ((32, 32, 32), 8, "ZeRO++ hpZ of 8"),
        ((8, 8, 8), None, "MiCS, HSDP of 8"),
        ((1, 8, 8), None, "hybrid ZeRO-2 of 8"),
        ((1, 8, 32), None, "PaRO NIG of 8"),
        ((8, 8, 32), None, "PaRO IIG of 8"),
        ((8, 32, 32), None, "PaRO IGG of 8"),
        ((2, 8, 32), None, "three-level of 2, 8"),
        ((4, 8, 16), None, "degrees (4, 8, 16)"),
    ],
)
def test_published_systems_have_their_names(degrees, secondary, name):
    assert system_name(strategy(*degrees, secondary=secondary), PLAN.hardware) == name


def test_the_sharding_sentence_groups_what_shares_a_degree():
    assert sharding_text(strategy(1, 1, 32), 32) == (
        "Optimizer states sharded over all 32 ranks; parameters and gradients whole on every rank"
    )
    assert sharding_text(strategy(8, 8, 8), 32) == (
        "Parameters, gradients and optimizer states sharded over 8 of 32 ranks; gathered anew in backward"
    )


def test_figures_read_as_people_write_them():
    assert [bytes_text(n) for n in (0, 1023, 1024, 3 * GIB // 2)] == ["0 B", "1,023 B", "1.00 KiB", "1.50 GiB"]
    assert [seconds_text(s) for s in (0, 2e-6, 0.0123, 1.5, 12.3)] == [
        "0 s",
        "2.00 µs",
        "12.30 ms",
        "1,500 ms",
        "12.30 s",
    ]
    assert [count_text(n) for n in (12, 84_213_760, 7.24e9)] == ["12", "84.21 M", "7.24 B"]
    assert [share_text(n, 100) for n in (0, 0.4, 12.6)] == ["0%", "<1%", "13%"]
    assert [plural(1, "rank"), plural(2, "micro-batch")] == ["1 rank", "2 micro-batches"]
    assert [difference_text(*pair) for pair in ((5, 5), (102, 100), (1, 0))] == ["exact", "+2.0%", "-"]
    assert [seconds_text(s) for s in (0.09999999, 0.0999)] == ["100.0 ms", "99.90 ms"]
    assert [difference_text(n, 1) for n in (10.9, 12, 5e9)] == ["+990.0%", "×12", "-"]
    assert [bytes_in(bytes_unit(GIB), n) for n in (24, GIB // 2)] == ["24 B", "0.50 GiB"]


def test_a_comparison_names_both_moments_and_hides_no_small_amount():
    memory = PLAN.predicted.memory.model_copy(update={"peak_phase": "optimizer step"})
    small = PLAN.predicted.traffic[0].model_copy(update={"degree_to": 8, "bytes": 24})
    predicted = PLAN.predicted.model_copy(update={"memory": memory, "traffic": (small,), "step_s": 0.3})
    other = PLAN.model_copy(update={"strategies": (strategy(32, 32, 32),), "predicted": predicted})
    text = "\n".join(lines_of(comparison_page(compare(PLAN, Rival(other))), 100))
    assert "backward of blocks.1; of the other: optimizer step" in text
    assert "24 B" in text


def test_a_trace_tells_tied_parameters_and_what_negative_saved_bytes_are():
    workload = hand_workload()
    borrowed = workload.blocks[-1]
    parameters = tuple(
        replace(each, aliases=(f"{borrowed.name}.weight",)) if index == 0 else each
        for index, each in enumerate(workload.parameters)
    )
    blocks = (*workload.blocks[:-1], replace(borrowed, parameters=()))
    graph = ModelGraph(
        name="Net",
        source=PLAN.model.source,
        precision="bf16",
        device="cuda",
        sequence_length=512,
        traced_by="fake",
        workload=replace(workload, parameters=parameters, blocks=blocks),
    )
    assert "tied: it uses parameters that another block counts" in lines_of(graph_page(graph), 100)


def test_the_best_of_the_other_engine_is_among_the_few_alternatives_shown() -> None:
    more = tuple(alternative(f"slower {n}", (1, 1, 32), 0.21 + n / 1000, 26, f"{n} slower") for n in range(6))
    plan = PLAN.model_copy(update={"alternatives": (*PLAN.alternatives, *more)})
    text = "\n".join(lines_of(plan_summary(plan), 100))
    assert "MiCS / HSDP of 8" in text
    assert "PaRO IIG" not in text
    assert "8 more with --verbose" in text
