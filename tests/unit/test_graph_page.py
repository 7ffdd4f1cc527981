"""The page of `trace`: as recorded in tests/golden/report, within its width, and with what is not known."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hand_workload import recomputed, timeline
from rich.console import Console

from costmodels.workload import Amount, Block, Parameter, Phase, Segment, Work, Workload
from planner.model_graph import ModelGraph, ModelSource
from planner.report.graph import graph_page

GOLDEN = Path(__file__).parents[1] / "golden" / "report"
MIB = 2**20
LAYER = 12 * 4096**2


def _segment(block: int, phase: Phase, flop: int, net: int, kept: int | None = None, kind: str = "matmul") -> Segment:
    work = (Work(kind, "bfloat16", Amount(0, flop)),) if flop else ()  # type: ignore[arg-type]
    if flop and kept is not None:
        work += (Work("attention", "bfloat16", Amount(0, flop // 10)),)
    peak, saved = Amount(0, 2 * abs(net)), Amount(0, net)
    again = None if kept is None else recomputed(phase, peak, saved, Amount(0, kept), peak)
    total = sum((each.flop for each in work), Amount())
    return Segment(block, phase, (), total, Amount(), 1, timeline=timeline(peak, saved), work=work, recomputed=again)


def _graph() -> ModelGraph:
    names = ("embed", "decoder.layers.0", "decoder.layers.1", "decoder.layers.2", "head", "")
    classes = (0, 1, 1, 1, 2, 3)
    parameters = tuple(
        Parameter(f"{name}.weight", (LAYER if "layers" in name else 32_000 * 4096,), trainable=name != "embed")
        for name in names[:4]
    )
    tied = replace(parameters[0], aliases=("head.weight",))
    blocks = tuple(
        Block(name, classes[index], (index,) if index < 4 else (), recomputable="layers" in name)
        for index, name in enumerate(names)
    )
    forward = [
        _segment(0, "forward", 0, 16 * MIB),
        *(_segment(index, "forward", 10**12, 300 * MIB, 16 * MIB) for index in (1, 2, 3)),
        _segment(4, "forward", 5 * 10**11, 250 * MIB),
        _segment(5, "forward", 0, -30 * MIB),
    ]
    backward = [
        _segment(4, "backward", 10**12, -220 * MIB),
        *(_segment(index, "backward", 2 * 10**12, -300 * MIB, -16 * MIB) for index in (3, 2, 1)),
    ]
    return ModelGraph(
        name="Decoder",
        source=ModelSource(spec="/models/decoder.py:decoder", kind="file"),
        precision="fp32",
        autocast="bf16",
        device="cuda",
        sequence_length=2048,
        traced_by="make_fx",
        lost=(
            "The run on fake tensors failed: NotImplementedError: Cannot access storage of BatchedTensorImpl "
            "(/models/decoder.py:41).",
            "Which module an operator belongs to is inferred from the parameters that it uses.",
        ),
        warnings=("/models/decoder.py:57: a mask selects elements; assumed to select all",),
        workload=Workload((tied, *parameters[1:]), blocks, (*forward, *backward)),
    )


def _lines(graph: ModelGraph, width: int, seconds: float | None = 1.234) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, markup=False, emoji=False).print(graph_page(graph, seconds))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_the_page_is_as_recorded(width: int) -> None:
    """Set RECORD_GOLDEN=1 to record anew, and review the differences."""
    lines = _lines(_graph(), width)
    golden = GOLDEN / f"trace_{width}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("RECORD_GOLDEN") == "1":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert max(map(len, lines)) <= width


def test_a_model_without_layers_to_recompute_has_no_column_for_it() -> None:
    graph = _graph()
    blocks = tuple(replace(block, recomputable=False) for block in graph.workload.blocks)
    segments = tuple(replace(segment, recomputed=None) for segment in graph.workload.segments)
    plain = graph.model_copy(
        update={"workload": replace(graph.workload, blocks=blocks, segments=segments), "lost": (), "warnings": ()}
    )
    text = "\n".join(_lines(plain, 80, None))
    assert "run again" not in text
    assert "recomputed" not in text
    assert "does not know" not in text
    assert " in 1" not in text
