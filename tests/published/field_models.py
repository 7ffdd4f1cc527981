"""Models of people's reports, by their shapes, and the machines that the reports are of; made without torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from decoder import published
from hand_workload import timeline
from transformer_graph import Shape, transformer_graph

from costmodels.strategy import Precision
from costmodels.workload import Amount, Workload
from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile
from planner.model_graph import ModelGraph

FIELD = published()["field"]
GIB, MIB = 2**30, 2**20

SHAPES = {
    # Its vocabulary is such that the parameters are 6.805e9.
    "6.8B": Shape(32, 4096, 16384, 44250, 4096, gated=False, sequence_length=2048),
    "7B": Shape(32, 4096, 11008, 32000, 4096, sequence_length=2048),
    # Its attention is wider than the model, which the feed-forward part makes up for here.
    "backbone": Shape(64, 5120, 28288, 151936, 1024, sequence_length=151),
    # It sees the backbone's 151 tokens beside its own 50.
    "expert": Shape(64, 1024, 3600, 32, 512, sequence_length=201),
    # A head of its own counts as much as the embedding: each has half of the entries of one that is tied.
    "BERT-large": Shape(24, 1024, 4096, 15261, 1024, gated=False, sequence_length=128),
    # The key projections are as large as its adapters, and stand for them.
    "30B": Shape(60, 6656, 20480, 32000, 268, sequence_length=2048),
    "1.5B": Shape(48, 1600, 6400, 25129, 1600, gated=False),
    "5B": Shape(64, 2560, 10240, 32003, 2560, gated=False, sequence_length=512),
}


@cache
def graph_of(name: str, precision: Precision = "bf16") -> ModelGraph:
    """Returns a model of `SHAPES`, all of it trained."""
    return transformer_graph(SHAPES[name], precision=precision)


def trained_only(graph: ModelGraph, is_trained: Callable[[str], bool]) -> ModelGraph:
    """Returns the model with all parameters frozen but those whose names are accepted."""
    workload = graph.workload
    parameters = tuple(replace(each, trainable=is_trained(each.name)) for each in workload.parameters)
    segments = tuple(
        replace(segment, gradients=tuple(index for index in segment.gradients if parameters[index].trainable))
        for segment in workload.segments
    )
    return graph.model_copy(update={"workload": replace(workload, parameters=parameters, segments=segments)})


def behind_a_frozen_backbone(backbone: ModelGraph, expert: ModelGraph) -> ModelGraph:
    """Returns a trained model that runs after one that is frozen, keeps nothing, and has no backward."""
    frozen = trained_only(backbone, lambda _: False).workload
    trained = expert.workload
    parameters = (*frozen.parameters, *(replace(each, name=f"expert.{each.name}") for each in trained.parameters))
    after, classes_after, blocks_after = len(frozen.parameters), frozen.num_classes, len(frozen.blocks)
    blocks = tuple(
        replace(
            block,
            name=f"expert.{block.name}",
            block_class=block.block_class + classes_after,
            parameters=tuple(index + after for index in block.parameters),
        )
        for block in trained.blocks
    )
    before = tuple(
        replace(
            segment,
            calls=tuple(replace(call, inputs_require_grad=False, num_outputs=0) for call in segment.calls),
            timeline=timeline(Amount(0, segment.timeline.peak_bytes(1)), Amount()),
            recomputed=None,
        )
        for segment in frozen.segments
        if segment.phase == "forward"
    )
    then = tuple(
        replace(
            segment,
            block=segment.block + blocks_after,
            gradients=tuple(index + after for index in segment.gradients),
            calls=tuple(
                replace(call, module=f"expert.{call.module}", parameters=tuple(i + after for i in call.parameters))
                for call in segment.calls
                if call.module
            ),
        )
        for segment in trained.segments
    )
    backbone_blocks = tuple(replace(block, recomputable=False) for block in frozen.blocks)
    workload = Workload(parameters, (*backbone_blocks, *blocks), (*before, *then))
    return expert.model_copy(update={"workload": workload})


def config_file(folder: Path, zero: dict[str, Any], **more: Any) -> Path:
    """Writes a DeepSpeed configuration and returns its path."""
    path = folder / "ds_config.json"
    path.write_text(json.dumps({"zero_optimization": zero, **more}))
    return path


def with_slow_link(num_nodes: int, ranks_per_node: int, node_bytes_per_s: float) -> HardwareProfile:
    """Returns nodes of L4s between which a link is slow; all else is as shipped."""
    profile = load("l4-pcie-8", num_nodes, ranks_per_node)
    network = profile.levels[-1].model_copy(update={"unit_bytes_per_s": node_bytes_per_s})
    return profile.model_copy(update={"levels": (*profile.levels[:-1], network)})
