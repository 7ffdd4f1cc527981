"""What a trace found, for people: the model's size, and its blocks by class."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from costmodels.workload import Amount, Segment, Workload
from planner.model_graph import ModelGraph
from planner.report.figures import bytes_text, count_text, flop_text


def graph_page(graph: ModelGraph) -> RenderableType:
    """Returns the traced model: parameters, work and saved bytes per class of equal blocks, for one sample."""
    workload = graph.workload
    length = f", {graph.sequence_length:,} tokens per sample" if graph.sequence_length else ""
    title = Text(graph.name, style="bold green")
    title.append(
        f"  {count_text(workload.num_params)} parameters, {graph.precision} on {graph.device}{length}",
        style="not bold default",
    )
    parts: list[RenderableType] = [title, Text("\nBlocks by class, for one sample", style="bold"), _classes(workload)]
    parts += [Text.assemble(("\nwarning: ", "bold yellow"), text) for text in graph.warnings]
    return Group(*parts)


def _classes(workload: Workload) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("blocks", "first", "parameters", "forward", "backward", "saved"):
        table.add_column(name, no_wrap=True, justify="left" if name == "first" else "right")
    for block_class in range(workload.num_classes):
        members = [index for index, block in enumerate(workload.blocks) if block.block_class == block_class]
        first = workload.blocks[members[0]]
        forward = [segment for segment in workload.segments if segment.block in members and segment.phase == "forward"]
        backward = [
            segment for segment in workload.segments if segment.block in members and segment.phase == "backward"
        ]
        table.add_row(
            str(len(members)),
            first.name or "(the rest)",
            count_text(
                sum(workload.parameters[i].num_elements for m in members for i in workload.blocks[m].parameters)
            ),
            flop_text(_flop(forward)),
            flop_text(_flop(backward)),
            bytes_text(sum((segment.net_bytes for segment in forward), Amount()).at(1)),
        )
    return table


def _flop(segments: Sequence[Segment]) -> int:
    return sum((segment.flop for segment in segments), Amount()).at(1)
