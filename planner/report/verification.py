"""A verification for people: each figure traced and real, and whether they agree as promised."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.figures import bytes_text, count_text, flop_text, seconds_text
from planner.verify.verification import Comparison, Verification

_TITLES = {
    "num_params": "parameters",
    "forward_flop": "forward",
    "backward_flop": "backward in all",
    "recomputation_flop": "  of it recomputation",
    "saved_bytes": "saved for backward",
    "peak_bytes": "peak",
    "allocator_saved_bytes": "saved, by allocator",
    "allocator_peak_bytes": "peak, by allocator",
}


def verification_page(found: Verification) -> RenderableType:
    """Returns the traced figures beside those of a real step on this CPU, and the losses of both."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("traced", "real", "traced / real", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in found.comparisons:
        if figure.traced or figure.real:
            table.add_row(_TITLES[figure.name], *_values(figure), _ratio(figure), _verdict(figure))
    table.add_row("loss of the graph", *_losses(found))
    warnings = [Text.assemble(("\nwarning: ", "bold yellow"), text) for text in found.warnings]
    notes = [Text(note, style="dim") for note in found.notes]
    return Group(_title(found), Text(""), table, Text(""), *notes, *warnings)


def _title(found: Verification) -> Text:
    as_promised = "as promised" if found.holds else "NOT as promised"
    title = Text(found.name, style="bold green" if found.holds else "bold red")
    mode = f"{found.precision} under {found.autocast} autocast" if found.autocast else found.precision
    blocks = ", every block recomputed" if found.recompute else ""
    seconds = f"traced in {seconds_text(found.trace_s)}, ran in {seconds_text(found.real_s)}"
    title.append(
        f"  {as_promised}: {found.micro_batch_size} samples, {mode} on cpu{blocks}; {seconds}", style="not bold default"
    )
    return title


def _values(figure: Comparison) -> tuple[str, str]:
    unit = figure.name.rpartition("_")[2]
    text = {"bytes": bytes_text, "flop": flop_text, "params": count_text}[unit]
    return text(figure.traced), text(figure.real)


def _ratio(figure: Comparison) -> str:
    return "exact" if figure.traced == figure.real else f"{figure.ratio:.6f}"


def _verdict(figure: Comparison) -> Text:
    if figure.is_promised:
        return Text("holds", style="green") if figure.holds else Text("off", style="bold red")
    return Text("")


def _losses(found: Verification) -> tuple[str, str, str, Text]:
    if found.loss_replayed is None or found.loss_difference is None:
        return "", f"{found.loss_eager:.6g}", "", Text("not replayed", style="bold red")
    verdict = Text("holds", style="green") if found.loss_holds else Text("off", style="bold red")
    ratio = "exact" if found.loss_replayed == found.loss_eager else f"1 ± {found.loss_difference:.1e}"
    return f"{found.loss_replayed:.6g}", f"{found.loss_eager:.6g}", ratio, verdict
