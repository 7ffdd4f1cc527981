"""What a trace found, for people: the model's size, and its blocks by class."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from costmodels.workload import Amount, Block, Segment, Workload
from planner.model_graph import ModelGraph
from planner.report.figures import bytes_in, bytes_unit, count_text, flop_text


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
    parts += [Text(note, style="dim") for note in _notes(workload)]
    parts += [Text.assemble(("\nwarning: ", "bold yellow"), text) for text in graph.warnings]
    return Group(*parts)


def _classes(workload: Workload) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("blocks", "first", "parameters", "forward", "backward", "saved"):
        table.add_column(name, no_wrap=True, justify="left" if name == "first" else "right")
    saved = _saved(workload)
    unit = bytes_unit(max(map(abs, saved), default=0))
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
            "tied" if _is_tied(workload, first) else count_text(_num_elements(workload, members)),
            flop_text(_flop(forward)),
            flop_text(_flop(backward)),
            bytes_in(unit, saved[block_class]),
        )
    return table


def _notes(workload: Workload) -> list[str]:
    notes = []
    if any(_is_tied(workload, block) for block in workload.blocks):
        notes.append("tied: it uses parameters that another block counts")
    if any(num_bytes < 0 for num_bytes in _saved(workload)):
        notes.append("saved: bytes more after a block's forward than before; negative where it frees what came in")
    return notes


def _is_tied(workload: Workload, block: Block) -> bool:
    aliases = [alias for parameter in workload.parameters for alias in parameter.aliases]
    return not block.parameters and any(alias.startswith(f"{block.name}.") for alias in aliases)


def _num_elements(workload: Workload, members: Sequence[int]) -> int:
    return sum(workload.parameters[i].num_elements for m in members for i in workload.blocks[m].parameters)


def _saved(workload: Workload) -> list[int]:
    """For each class, bytes that its blocks' forward leaves for one sample."""
    saved = [Amount()] * workload.num_classes
    for segment in workload.segments:
        if segment.phase == "forward":
            saved[workload.blocks[segment.block].block_class] += segment.net_bytes
    return [amount.at(1) for amount in saved]


def _flop(segments: Sequence[Segment]) -> int:
    return sum((segment.flop for segment in segments), Amount()).at(1)
