"""The summary of a plan: what was chosen and why, memory against the budget, time by cause, alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.plan import Plan, PlannedStrategy
from planner.report.alternatives import alternatives_table, best_of_other, runner_up
from planner.report.bar import Bar
from planner.report.figures import (
    bytes_in,
    bytes_text,
    bytes_unit,
    count_text,
    difference_text,
    plural,
    same_to_a_thousandth,
    seconds_in,
    seconds_text,
    seconds_unit,
    share_text,
)
from planner.report.names import degrees_names, degrees_text, exposed_times, operation_text, plan_name, sharding_text

ENGINE_NAMES = {"deepspeed": "DeepSpeed", "fsdp": "FSDP2"}


def plan_summary(plan: Plan, *, verbose: bool = False) -> RenderableType:
    """Returns the page that `plan` and `estimate` print; `verbose` adds every alternative and the traffic."""
    parts = [
        _headline(plan),
        *_titled("Time of a step", _time(plan)),
        *_titled(f"Memory at the peak, {plan.predicted.memory.peak_phase}", _memory(plan)),
    ]
    if verbose:
        parts += _titled("Traffic per rank and step", _traffic(plan))
    if plan.alternatives:
        parts += _titled("Alternatives", alternatives_table(plan, every=verbose))
    parts += [_warning(text) for text in plan.warnings]
    return Group(*parts)


def _titled(title: str, *content: RenderableType) -> list[RenderableType]:
    return [Text(f"\n{title}", style="bold"), *(Padding(part, (0, 0, 0, 2)) for part in content)]


def _warning(text: str) -> RenderableType:
    return Text.assemble(("\nwarning: ", "bold yellow"), text)


def _headline(plan: Plan) -> RenderableType:
    job, hardware, model = plan.job, plan.hardware, plan.model
    title = Text(f"{plan_name(plan.strategies, hardware)} on {ENGINE_NAMES[plan.engine]}", style="bold green")
    title.append(f"  ({degrees_names(plan.strategies)}) = ({degrees_text(plan.strategies)})", style="not bold default")
    nodes = hardware.world_size // hardware.ranks_per_node
    frozen = model.num_params - model.num_trainable_params
    parameters = count_text(model.num_params) + " parameters" + (f", {count_text(frozen)} frozen" if frozen else "")
    length = f" of {plural(job.sequence_length, 'token')}" if job.sequence_length else ""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    lines.add_row("model", f"{model.name}, {parameters}, {job.precision}, {job.optimizer}")
    lines.add_row("machine", f"{hardware.name}, {plural(nodes, 'node')} × {plural(hardware.ranks_per_node, 'rank')}")
    lines.add_row(
        "batch",
        f"{plural(job.global_batch_size, 'sample')}{length} = {job.micro_batch_size:,} × "
        f"{plural(job.num_micro_batches, 'micro-batch')} × {plural(hardware.world_size, 'rank')}",
    )
    lines.add_row("sharding", "\n".join(_shardings(plan)))
    lines.add_row("recompute", _recompute(plan))
    lines.add_row("why", _why(plan))
    return Group(title, Padding(lines, (0, 0, 0, 2)))


def _shardings(plan: Plan) -> list[str]:
    by_text: dict[str, int] = {}
    for strategy in plan.strategies:
        text = sharding_text(strategy, plan.hardware.world_size)
        by_text[text] = by_text.get(text, 0) + len(strategy.blocks)
    if len(by_text) == 1:
        return list(by_text)
    return [f"{plural(count, 'block')}: {text}" for text, count in by_text.items()]


def _recompute(plan: Plan) -> str:
    full = _num_blocks(strategy for strategy in plan.strategies if strategy.recompute == "full")
    every = _num_blocks(plan.strategies)
    return f"full in {full} of {plural(every, 'block')}" if full else "none"


def _num_blocks(strategies: Iterable[PlannedStrategy]) -> int:
    return sum(len(strategy.blocks) for strategy in strategies)


def _why(plan: Plan) -> str:
    solver = plan.solver
    if solver.status == "FIXED":
        return "given, not chosen"
    count = plural(solver.num_strategies, "combination")
    proof = (
        f"proved fastest of {count} under this model"
        if solver.status == "OPTIMAL"
        else (f"fastest found of {count} under this model; a faster one could save at most {100 * solver.gap:.1f}%")
    )
    if solver.decided_by == "simulation":
        proof = f"fastest when played through, of those near the best bound of {count}"
    if solver.decided_by == "blocks" and solver.status == "OPTIMAL":
        proof = f"fastest of {count}, with as few blocks recomputed as fit"
    if solver.decided_by == "alike":
        proof = f"one strategy for all blocks, as fast as the fastest of {count} to a thousandth"
    return "; ".join((proof, *_others(plan)))


def _others(plan: Plan) -> Iterator[str]:
    """Yields what comes next on the plan's engine, and what the other engine would have given."""
    mine_s, second, other = plan.predicted.step_s, runner_up(plan), best_of_other(plan)
    if second is not None and plan.solver.decided_by in ("bound", "alike", "blocks"):
        if same_to_a_thousandth(second.step_s, mine_s):
            yield f"{second.name} is as fast"
        else:
            yield f"then {second.name} at {seconds_text(second.step_s)} ({difference_text(second.step_s, mine_s)})"
    if other is not None:
        name = ENGINE_NAMES[other.engine]
        if same_to_a_thousandth(other.step_s, mine_s):
            yield f"{name} would be as fast"
        else:
            yield f"{name}'s best would take {seconds_text(other.step_s)} ({difference_text(other.step_s, mine_s)})"


def _time(plan: Plan) -> RenderableType:
    predicted = plan.predicted
    unit = seconds_unit(predicted.step_s)
    table = _waterfall()
    begin = 0.0
    for name, seconds, style in _causes(plan):
        bar = Bar(begin, begin + seconds, predicted.step_s, style)
        table.add_row(name, unit.text(seconds), share_text(seconds, predicted.step_s), bar)
        begin += seconds
    rate = f"{predicted.tokens_per_s:,.0f} {'tokens' if plan.job.sequence_length else 'samples'}/s"
    # Every term is a lower bound: a measured step takes longer.
    table.add_row(
        Text("step, at best", style="bold"),
        Text(unit.text(predicted.step_s), style="bold"),
        "",
        f"{rate}   MFU {100 * predicted.mfu:.1f}%",
    )
    played_s = predicted.simulated_step_s
    if played_s is not None and not same_to_a_thousandth(played_s, predicted.step_s):
        more = difference_text(played_s, predicted.step_s)
        table.add_row("step, played through", unit.text(played_s), "", f"{more}, message by message")
    return table


def _causes(plan: Plan) -> list[tuple[str, float, str]]:
    """What a step's time goes to, in order: compute, then the communication that it does not hide."""
    terms = [("compute", plan.predicted.compute_s), *exposed_times(plan.predicted)]
    styles = ("green", "cyan", "blue", "magenta", "yellow", "red")
    return [(name, seconds, style) for (name, seconds), style in zip(terms, styles, strict=False) if seconds > 0]


def _memory(plan: Plan) -> RenderableType:
    """The components up to the peak, then the peak within the budget."""
    memory = plan.predicted.memory
    unit = bytes_unit(memory.peak_bytes)
    table = _waterfall()
    begin = 0.0
    styles = ("green", "cyan", "blue", "magenta", "yellow", "red", "cyan", "white")
    for (name, amount), style in zip(memory.components, styles, strict=True):
        if amount:
            bar = Bar(begin, begin + amount, memory.peak_bytes, style)
            table.add_row(name.replace("_", " "), unit.text(amount), share_text(amount, memory.peak_bytes), bar)
            begin += amount
    fits = memory.peak_bytes <= memory.budget_bytes
    bar = Bar(0, memory.peak_bytes, max(memory.budget_bytes, memory.peak_bytes), "" if fits else "red", track=True)
    table.add_row(
        Text("peak of the budget", style="bold"),
        Text(unit.text(memory.peak_bytes), style="bold"),
        share_text(memory.peak_bytes, memory.budget_bytes),
        bar,
    )
    note = (
        f"budget {bytes_text(memory.budget_bytes)} · at rest {unit.text(memory.at_rest_bytes)} · "
        f"while building {unit.text(memory.init_peak_bytes)}"
    )
    return Group(table, Text(note, style="" if fits else "bold red"))


def _traffic(plan: Plan) -> RenderableType:
    rows = plan.predicted.traffic
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("collective", no_wrap=True)
    for name in ("bytes", "messages", "busy", "exposed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("time is", no_wrap=True, style="dim")
    bytes_of_all = bytes_unit(max((row.bytes for row in rows), default=0))
    seconds_of_all = seconds_unit(max((max(row.seconds, row.exposed_s) for row in rows), default=0.0))
    for row in rows:
        table.add_row(
            operation_text(row.operation, row.degree_from, row.degree_to),
            bytes_in(bytes_of_all, row.bytes),
            f"{row.count:,}",
            seconds_in(seconds_of_all, row.seconds),
            seconds_in(seconds_of_all, row.exposed_s),
            row.known,
        )
    return table


def _waterfall() -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(ratio=1)
    return table


def written_to(plan: Plan, folder: Path | None) -> RenderableType:
    """Returns where the files are and the next command to type, or how to have them."""
    if folder is None:
        return Text("\nAdd --out DIR to write the engine's config and the launcher.", style="dim")
    files = "plan.json, ds_config.json, launch.py, launch.sh, report.html"
    lines = Text.assemble("\nWritten to ", (f"{folder}/", "bold"), f": {files}")
    several_nodes = plan.hardware.device_kind == "cuda" and plan.hardware.world_size > plan.hardware.ranks_per_node
    hosts = " --hostfile FILE, or under SLURM its launch.sh" if several_nodes else ""
    return lines.append(f"\nNext: shardplan run {folder}{hosts}")
