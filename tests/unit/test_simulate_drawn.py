"""The timeline as people see it: in a terminal, and on the page that is written beside a plan."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser

import pytest
from rich.console import Console
from transformer_graph import SMALL, Shape, transformer_graph

from cli import app
from hw_profiles.load import load
from planner import estimate
from planner.choose.timeline_of import timeline_of
from planner.job import Job
from planner.machine import machine
from planner.plan import Plan
from planner.report.answering import answer_to
from planner.report.figures import seconds_unit
from planner.report.page import report_html
from planner.report.plan import plan_summary
from planner.report.timeline import timeline_page

DEEP = Shape(126, 512, 2048, 8192, 512, gated=False, sequence_length=128)
PROFILE = load("dgx-a100-80gb", 2)


def drawn(shape: Shape, degrees, secondary=None):
    graph = transformer_graph(shape)
    plan = estimate(graph, PROFILE, Job(global_batch_size=64), degrees, secondary_degree=secondary)
    names = [block.name for block in graph.workload.blocks]
    return plan, timeline_of(plan, graph, machine(PROFILE, "bf16")), names


def text_of(shape: Shape, degrees, width: int, secondary=None) -> list[str]:
    plan, timeline, names = drawn(shape, degrees, secondary)
    console = Console(width=width, record=True, force_terminal=False, file=io.StringIO())
    console.print(timeline_page(timeline, plan, names))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [60, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_each_row_fills_it(width):
    lines = text_of(DEEP, (16, 16, 16), width)
    assert max(len(line) for line in lines) <= width
    rows = [line for line in lines if line.startswith(("compute  ", "over 16  "))]
    assert len(rows) >= 2
    assert {len(row) for row in rows} == {width}


def test_126_layers_are_named_where_there_is_room_for_their_names():
    (ruler,) = [line for line in text_of(DEEP, (16, 16, 16), 100) if "embedding" in line]
    labels = ruler.split()
    assert 10 <= len(labels) <= 50
    assert labels[0] == "embedding"
    numbers = [int(label) for label in labels if label.isdigit()]
    turn = numbers.index(max(numbers))
    assert numbers[:turn] == sorted(numbers[:turn])
    assert numbers[turn:] == sorted(numbers[turn:], reverse=True)


def test_the_parts_sum_to_the_step_that_the_plan_says():
    plan, timeline, _ = drawn(SMALL, (2, 8, 16))
    assert timeline.step_s == plan.predicted.simulated_step_s
    assert sum(part.repeats * part.duration_ns for part in timeline.parts) == timeline.step_ns


def test_each_kind_of_group_has_a_row_of_its_own():
    lines = text_of(SMALL, (2, 8, 16), 80)
    rows = {line.split("  ")[0] for line in lines if line.startswith(("compute  ", "over ", "between "))}
    assert {"compute", "over 2", "over 8", "between 8 and 16"} <= rows


class _Page(HTMLParser):
    """Opened elements that are not closed, and whatever would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta",):
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page_of(plan: Plan, timeline, names) -> _Page:
    page = _Page()
    page.feed(report_html(plan, timeline, names))
    return page


@pytest.mark.parametrize("degrees", [(1, 1, 16), (16, 16, 16), (2, 8, 16)])
def test_a_page_is_whole_and_needs_nothing_else(degrees):
    page = page_of(*drawn(SMALL, degrees))
    assert page.open == []
    assert page.fetched == []
    text = " ".join(page.text)
    for expected in ("Timeline of an optimizer step", "Strategies", "Memory of a rank", "Traffic of a rank"):
        assert expected in text


def test_names_from_a_model_cannot_break_a_page():
    plan, timeline, names = drawn(SMALL, (16, 16, 16))
    named = plan.model_copy(update={"model": plan.model.model_copy(update={"name": "<script>alert(1)</script>"})})
    page = page_of(named, timeline, [f"<b>{name}" for name in names])
    assert page.open == []
    assert "script" not in report_html(named, timeline, names).replace("&lt;script&gt;", "").replace(
        "&lt;/script&gt;", ""
    )


def test_a_plan_is_written_with_its_page_and_explain_draws_it(tmp_path, capsys):
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(transformer_graph(SMALL).model_dump(mode="json")), encoding="utf-8")
    out = tmp_path / "out"
    options = ["--hardware", "dgx-a100-80gb", "--nodes", "2", "--global-batch-size", "64", "--out", str(out)]
    assert answer_to(app, ["estimate", str(graph), "--degrees", "16,16,16", *options]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    capsys.readouterr()
    assert answer_to(app, ["explain", str(out)]) == 0
    assert "Timeline of an optimizer step" in capsys.readouterr().out


def test_a_summary_has_the_played_step_where_it_differs_from_the_bound():
    plan, timeline, _ = drawn(SMALL, (16, 16, 16))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(plan_summary(plan))
    (line,) = [line for line in console.export_text().splitlines() if "step, played through" in line]
    assert seconds_unit(plan.predicted.step_s).text(timeline.step_s) in line
    same = plan.predicted.model_copy(update={"simulated_step_s": plan.predicted.step_s})
    console.print(plan_summary(plan.model_copy(update={"predicted": same})))
    assert "played through" not in console.export_text()
