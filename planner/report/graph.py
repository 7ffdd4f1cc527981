"""What a trace found, for people: how it was made, and the model's work and memory by classes of equal blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from costmodels.workload import Amount, Block, Phase, Segment, Workload
from planner.model_graph import LargestActivation, ModelGraph
from planner.report.figures import bytes_in, bytes_unit, count_text, flop_text, plural, share_text

_WAYS = {
    "fake": "running it on tensors without memory",
    "make_fx": "one joint graph of forward and backward",
    "static": "its layers alone, without running it",
}


def graph_page(graph: ModelGraph, seconds: float | None = None) -> RenderableType:
    """Returns the page of `trace`: all amounts are those of one sample.

    Args:
        graph: The traced model.
        seconds: How long the trace took; None where that is not known.
    """
    workload = graph.workload
    classes = [_row(workload, block_class) for block_class in range(workload.num_classes)]
    parts: list[RenderableType] = [_title(graph), Padding(_facts(graph, seconds), (0, 0, 0, 2))]
    parts += _titled("Work by class of equal blocks, for one sample", _work_table(workload, classes))
    parts += _titled("Memory by class, for one sample", _memory_table(classes))
    if any(segment.work for segment in workload.segments):
        parts += _titled("Operations by kind", _kinds_table(workload))
    notes = _notes(classes)
    if notes:
        parts.append(Text("\n" + "\n".join(notes), style="dim"))
    if graph.lost:
        parts.append(Text("\nWhat this trace does not know, or bounds only", style="bold"))
        parts += [Padding(Text(sentence), (0, 0, 0, 2)) for sentence in graph.lost]
    parts += [Text.assemble(("\nwarning: ", "bold yellow"), text) for text in graph.warnings]
    return Group(*parts)


def _titled(title: str, content: RenderableType) -> list[RenderableType]:
    return [Text(f"\n{title}", style="bold"), Padding(content, (0, 0, 0, 2))]


def _title(graph: ModelGraph) -> Text:
    workload = graph.workload
    frozen = workload.num_params - workload.num_trainable_params
    title = Text(graph.name, style="bold green")
    rest = f"  {count_text(workload.num_params)} parameters"
    title.append(rest + (f", {count_text(frozen)} frozen" if frozen else ""), style="not bold default")
    return title


def _facts(graph: ModelGraph, seconds: float | None) -> RenderableType:
    numbers = f"{graph.precision} weights" + (f", autocast to {graph.autocast}" if graph.autocast else "")
    length = f", {plural(graph.sequence_length, 'token')} per sample" if graph.sequence_length else ""
    took = f", in {seconds:.1f} s" if seconds is not None else ""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    lines.add_row("step", f"{numbers}, as {graph.device} runs it{length}")
    lines.add_row("traced by", _WAYS.get(graph.traced_by, graph.traced_by) + took)
    if graph.largest_activation is not None:
        lines.add_row("largest tensor", _largest(graph.largest_activation))
    return lines


def _largest(tensor: LargestActivation) -> str:
    what = "logits of" if tensor.are_logits else "made in"
    size = bytes_in(bytes_unit(tensor.bytes_per_sample), tensor.bytes_per_sample)
    return f"{what} {tensor.module or 'the root module'}, {tensor.dtype}, {size} a sample"


@dataclass(frozen=True, slots=True)
class _Row:
    """One class of equal blocks."""

    num_blocks: int
    first: str
    parameters: str
    forward_flop: int
    backward_flop: int
    is_recomputable: bool
    saved_bytes: int
    recomputed_bytes: int
    """Saved where its blocks are recomputed."""
    peak_bytes: int
    """The greatest of one block, over what was there before it."""


def _row(workload: Workload, block_class: int) -> _Row:
    members = [index for index, block in enumerate(workload.blocks) if block.block_class == block_class]
    mine = [segment for segment in workload.segments if segment.block in members]
    forward = [segment for segment in mine if segment.phase == "forward"]
    first = workload.blocks[members[0]]
    return _Row(
        num_blocks=len(members),
        first=first.name or "(the rest)",
        parameters="tied" if _is_tied(workload, first) else count_text(_num_elements(workload, members)),
        forward_flop=_flop(mine, "forward"),
        backward_flop=_flop(mine, "backward"),
        is_recomputable=first.recomputable,
        saved_bytes=sum((segment.net_bytes for segment in forward), Amount()).at(1),
        recomputed_bytes=sum((_recomputed_bytes(segment) for segment in forward), Amount()).at(1),
        peak_bytes=max((segment.timeline.peak_bytes(1) for segment in mine), default=0),
    )


def _work_table(workload: Workload, classes: Sequence[_Row]) -> RenderableType:
    again = [row.forward_flop if row.is_recomputable else 0 for row in classes]
    table = _table("blocks", "first", "parameters", "forward", "backward", *(["run again"] if any(again) else []))
    for row, flop in zip(classes, again, strict=True):
        amounts = [row.forward_flop, row.backward_flop, *([flop] if any(again) else [])]
        table.add_row(str(row.num_blocks), row.first, row.parameters, *map(_work_text, amounts))
    if len(classes) > 1:
        forward, backward = sum(row.forward_flop for row in classes), sum(row.backward_flop for row in classes)
        amounts = [forward, backward, *([sum(again)] if any(again) else [])]
        parameters = count_text(workload.num_params)
        table.add_row(str(len(workload.blocks)), "(all)", parameters, *map(_work_text, amounts), style="bold")
    return table


def _work_text(flop: int) -> str:
    return flop_text(flop) if flop else "-"


def _memory_table(classes: Sequence[_Row]) -> RenderableType:
    is_recomputed = any(row.is_recomputable for row in classes)
    table = _table("blocks", "first", "saved", *(["recomputed"] if is_recomputed else []), "peak")
    saved, recomputed = sum(row.saved_bytes for row in classes), sum(row.recomputed_bytes for row in classes)
    unit = bytes_unit(max([abs(saved), *(row.peak_bytes for row in classes)]))
    for row in classes:
        kept = [bytes_in(unit, row.recomputed_bytes) if row.is_recomputable else "-"] if is_recomputed else []
        amounts = [bytes_in(unit, row.saved_bytes), *kept, bytes_in(unit, row.peak_bytes)]
        table.add_row(str(row.num_blocks), row.first, *amounts)
    if len(classes) > 1:
        kept = [bytes_in(unit, recomputed)] if is_recomputed else []
        count = sum(row.num_blocks for row in classes)
        table.add_row(str(count), "(all)", bytes_in(unit, saved), *kept, "", style="bold")
    return table


def _kinds_table(workload: Workload) -> RenderableType:
    table = _table("kind", "numbers", "forward", "backward", "share")
    found: dict[tuple[str, str], dict[Phase, Amount]] = {}
    for segment in workload.segments:
        for work in segment.work:
            sums = found.setdefault((work.kind, work.dtype), {"forward": Amount(), "backward": Amount()})
            sums[segment.phase] += work.flop
    rows = [(key, sums["forward"].at(1), sums["backward"].at(1)) for key, sums in found.items()]
    whole = sum(forward + backward for _, forward, backward in rows)
    for (kind, dtype), forward, backward in sorted(rows, key=lambda row: (-(row[1] + row[2]), row[0])):
        share = share_text(forward + backward, whole)
        table.add_row(kind, dtype, flop_text(forward), flop_text(backward), share)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        is_text = name in ("first", "kind", "numbers")
        table.add_column(name, no_wrap=not is_text, overflow="fold", justify="left" if is_text else "right")
    return table


def _notes(classes: Iterable[_Row]) -> list[str]:
    rows = list(classes)
    notes = []
    if any(row.parameters == "tied" for row in rows):
        notes.append("tied: it uses parameters that another block counts")
    if any(row.saved_bytes < 0 for row in rows):
        notes.append("saved: bytes more after a block's forward than before; negative where it frees what came in")
    if any(row.is_recomputable for row in rows):
        notes.append("recomputed: what is saved where each block keeps its inputs and runs again in backward")
    return notes


def _is_tied(workload: Workload, block: Block) -> bool:
    aliases = [alias for parameter in workload.parameters for alias in parameter.aliases]
    return not block.parameters and any(alias.startswith(f"{block.name}.") for alias in aliases)


def _num_elements(workload: Workload, members: Sequence[int]) -> int:
    return sum(workload.parameters[i].num_elements for m in members for i in workload.blocks[m].parameters)


def _recomputed_bytes(segment: Segment) -> Amount:
    return segment.net_bytes if segment.recomputed is None else segment.recomputed.timeline.net_bytes


def _flop(segments: Sequence[Segment], phase: Phase) -> int:
    return sum((segment.flop for segment in segments if segment.phase == phase), Amount()).at(1)
