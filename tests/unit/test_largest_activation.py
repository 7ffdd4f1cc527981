"""The largest tensor of forward is found, and called logits only where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from planner.model_graph import LargestActivation, ModelGraph, ModelSource
from planner.report.graph import graph_page
from planner.trace import trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt.py"
LENGTH = 16


def traced(vocab: int, way: str = "fake") -> ModelGraph:
    arguments = {"width": "32", "depth": "2", "heads": "2", "vocab": str(vocab)}
    source = ModelSource(spec=f"{EXAMPLE}:gpt", kind="file", arguments=arguments)
    return trace(source, precision="bf16", device="cuda", sequence_length=LENGTH, way=way)  # type: ignore[arg-type]


def largest(graph: ModelGraph) -> LargestActivation:
    assert graph.largest_activation is not None
    return graph.largest_activation


def page(graph: ModelGraph) -> str:
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(graph_page(graph))
    return capture.get()


@pytest.mark.parametrize("way", ["fake", "make_fx"])
def test_what_is_as_wide_as_the_vocabulary_are_logits(way: str) -> None:
    graph = traced(vocab=4096, way=way)
    found = largest(graph)
    assert (found.are_logits, found.shape[-1]) == (True, 4096)
    width = {"bfloat16": 2, "float32": 4}[found.dtype]
    assert found.bytes_per_sample == LENGTH * 4096 * width
    assert f"logits of {found.module or 'the root module'}, {found.dtype}" in page(graph)


def test_a_head_that_makes_less_than_it_reads_makes_no_logits() -> None:
    graph = traced(vocab=8)
    found = largest(graph)
    assert not found.are_logits
    # The feed-forward part is four times as wide as the model.
    assert found.bytes_per_sample >= LENGTH * 4 * 32 * 2
    assert f"made in {found.module}" in page(graph)
