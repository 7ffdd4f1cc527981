"""A ModelGraph as a file: what `trace` writes, what a plan's folder keeps, and what serves as MODEL again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from costmodels.check_workload import problem_of
from costmodels.workload import Amount, Phase
from planner.errors import InputError
from planner.model_graph import SCHEMA_VERSION, ModelGraph


def graph_document(graph: ModelGraph) -> dict[str, Any]:
    """Returns the graph as plain values; its totals, for a micro-batch of one sample, come first."""
    workload = graph.workload
    blocks = [{"name": block.name, "block_class": block.block_class} for block in workload.blocks]
    totals = {
        "num_params": workload.num_params,
        "num_trainable_params": workload.num_trainable_params,
        "forward_flop": _flop(graph, "forward"),
        "backward_flop": _flop(graph, "backward"),
        "saved_bytes": _saved_bytes(graph),
        "blocks": blocks,
    }
    return totals | graph.model_dump(mode="json")


def _flop(graph: ModelGraph, phase: Phase) -> int:
    return sum((s.flop for s in graph.workload.segments if s.phase == phase), Amount()).at(1)


def _saved_bytes(graph: ModelGraph) -> int:
    return sum((s.net_bytes for s in graph.workload.segments if s.phase == "forward"), Amount()).at(1)


def read_graph(spec: str) -> ModelGraph | None:
    """Returns the saved graph at this path; None where `spec` is no path of one, but another way to name a model.

    Raises:
        InputError: the file is a saved graph of another version, or a damaged one.
    """
    path = Path(spec)
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict) or "workload" not in document:
        return None
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(f"{path} is a trace of version {version!r}, not {SCHEMA_VERSION}: trace the model again")
    try:
        graph = ModelGraph.model_validate({k: v for k, v in document.items() if k in ModelGraph.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path} is a damaged trace, at {where}: {first['msg']}; trace the model again") from error
    problem = problem_of(graph.workload)
    if problem is not None:
        raise InputError(f"{path} is a damaged trace: {problem}; trace the model again")
    return graph
