"""Explains a plan: its figures with the formulas that they come from, and the numbers filled in."""

from __future__ import annotations

from costmodels.compute import model_flop
from costmodels.lower import FilledFormula, fill_in
from costmodels.states import (
    GRADIENT_BYTES,
    OPTIMIZER_BYTES,
    PARAMETER_BYTES,
    SECONDARY_BYTES,
    StateWidths,
    num_block_params,
    state_widths,
)
from costmodels.symbols import (
    GRAD_DEGREE,
    GRAD_WIDTH,
    NUM_PARAMS,
    OPTIM_DEGREE,
    OPTIM_WIDTH,
    PARAM_DEGREE,
    PARAM_WIDTH,
    SECONDARY_DEGREE,
)
from planner.explain.explanation import Explanation, Line, Section
from planner.explain.messages import messages
from planner.explain.on_host import on_host
from planner.explain.retrace import Retraced, retrace
from planner.explain.step_lines import computed, held, hidden, sent
from planner.machine import Machine
from planner.model_graph import ModelGraph
from planner.plan import Plan, PlannedStrategy
from planner.report.figures import plural
from planner.report.names import exposed_times, operation_text

_LEAST_BYTES_PER_PARAMETER = 0.001
"""What is less is flags and norms, whose bytes do not grow with the model."""


def explain(plan: Plan, graph: ModelGraph, machine: Machine) -> Explanation:
    """Returns the figures of a plan with their formulas.

    Args:
        plan: what is explained.
        graph: the model that it was planned from.
        machine: the one that it was planned for, in the plan's precision.
    """
    sections = (
        Section(title="Model states of a rank, by the formulas", lines=_states(plan, graph)),
        Section(title=f"Memory at the peak: {plan.predicted.memory.peak_phase}", lines=_memory(plan)),
        Section(title="Traffic of a rank and optimizer step", lines=_traffic(plan)),
        Section(title="Time of a mean message", lines=messages(plan, machine.network)),
        Section(title="Time of an optimizer step", lines=_time(plan, graph, machine)),
    )
    traced = retrace(plan, graph, machine)
    parts = _parts(plan, traced, machine) if traced else (_changed(plan),)
    host = on_host(plan, machine.speed.host)
    moved = (Section(title="Update of states in host memory, of all blocks at once", lines=host),) if host else ()
    return Explanation(sections=(*sections, *parts, *moved))


def _parts(plan: Plan, traced: Retraced, machine: Machine) -> tuple[Section, ...]:
    """Returns what the figures above consist of, part by part."""
    return (
        Section(title="Compute of a step, segment by segment", lines=tuple(computed(traced, machine))),
        Section(title="Time of all messages of a step", lines=tuple(sent(traced, machine))),
        Section(title="Communication that compute does not hide", lines=tuple(hidden(plan, traced, machine))),
        Section(title="Bytes at the peak, by when they are held", lines=tuple(held(plan, traced))),
    )


def _changed(plan: Plan) -> Section:
    line = Line(
        name="step",
        formula="this version predicts another one for this plan, so that its parts cannot be shown: plan again",
        value=plan.predicted.step_s,
        unit="s",
    )
    return Section(title="Parts of a step", lines=(line,))


def _states(plan: Plan, graph: ModelGraph) -> tuple[Line, ...]:
    """P, G and OS of the blocks that share their degrees, as one formula each."""
    widths = state_widths(plan.job.precision, plan.job.optimizer)
    groups: dict[tuple[int, ...], list[PlannedStrategy]] = {}
    for strategy in plan.strategies:
        key = (strategy.param_degree, strategy.secondary_degree, strategy.grad_degree, strategy.optim_degree)
        groups.setdefault(key, []).append(strategy)
    lines: list[Line] = []
    for strategies in groups.values():
        names = {name for strategy in strategies for name in strategy.blocks}
        owned = [num_block_params(graph.workload, block) for block in graph.workload.blocks if block.name in names]
        num_params, num_trainable = (sum(column) for column in zip(*owned, strict=True))
        lines += _state_lines(strategies[0], widths, num_params, num_trainable)
    return tuple(lines)


def _state_lines(strategy: PlannedStrategy, widths: StateWidths, num_params: int, num_trainable: int) -> list[Line]:
    given = {
        PARAM_WIDTH: widths.parameter,
        GRAD_WIDTH: widths.gradient,
        OPTIM_WIDTH: widths.optimizer,
        PARAM_DEGREE: strategy.param_degree,
        SECONDARY_DEGREE: strategy.secondary_degree,
        GRAD_DEGREE: strategy.grad_degree,
        OPTIM_DEGREE: strategy.optim_degree,
    }
    filled = [fill_in(PARAMETER_BYTES, given | {NUM_PARAMS: num_params})]
    if 1 < strategy.secondary_degree < strategy.param_degree:
        filled.append(fill_in(SECONDARY_BYTES, given | {NUM_PARAMS: num_params}))
    filled += [fill_in(formula, given | {NUM_PARAMS: num_trainable}) for formula in (GRADIENT_BYTES, OPTIMIZER_BYTES)]
    return [_bytes_line(formula) for formula in filled]


def _bytes_line(filled: FilledFormula) -> Line:
    return Line(
        name=filled.name,
        formula=filled.formula,
        substituted=f"{filled.substituted} = {filled.value:,} bytes",
        value=filled.value,
        unit="bytes",
        source=filled.source,
    )


def _memory(plan: Plan) -> tuple[Line, ...]:
    memory = plan.predicted.memory
    held = [(name.replace("_", " "), amount) for name, amount in memory.components if amount]
    lines = [Line(name=name, value=amount, unit="bytes", substituted=f"{amount:,} bytes") for name, amount in held]
    peak = Line(
        name="peak",
        formula=" + ".join(name for name, _ in held),
        substituted=f"{memory.peak_bytes:,} bytes",
        value=memory.peak_bytes,
        unit="bytes",
    )
    left = Line(
        name="left of the budget",
        formula="budget - peak",
        substituted=f"{memory.budget_bytes:,} - {memory.peak_bytes:,}",
        value=memory.budget_bytes - memory.peak_bytes,
        unit="bytes",
    )
    return (*lines, peak, left)


def _traffic(plan: Plan) -> tuple[Line, ...]:
    num_params = plan.model.num_params
    return tuple(
        Line(
            name=operation_text(row.operation, row.degree_from, row.degree_to),
            formula=(f"{per_parameter:.4g} × P, " if scales else "") + f"in {plural(row.count, 'message')}",
            substituted=f"{per_parameter:.4g} × {num_params:,}" if scales else f"{row.bytes:,} bytes",
            value=row.bytes,
            unit="bytes",
        )
        for row in plan.predicted.traffic
        for per_parameter in (row.bytes / num_params,)
        for scales in (per_parameter >= _LEAST_BYTES_PER_PARAMETER,)
    )


def _time(plan: Plan, graph: ModelGraph, machine: Machine) -> tuple[Line, ...]:
    predicted, job = plan.predicted, plan.job
    terms = [("compute", predicted.compute_s), *(term for term in exposed_times(predicted) if term[1])]
    lines = [Line(name=name, value=seconds, unit="s") for name, seconds in terms]
    lines.append(
        Line(
            name="step",
            formula=" + ".join(name for name, _ in terms),
            substituted=" + ".join(f"{seconds:.4g}" for _, seconds in terms) + " s",
            value=predicted.step_s,
            unit="s",
        )
    )
    length = job.sequence_length or 1
    flop = model_flop(graph.workload, job.micro_batch_size)
    peak = machine.peak_flop_per_s
    lines += [
        Line(
            name="throughput",
            formula="global batch × sequence length / step",
            substituted=f"{job.global_batch_size:,} × {length:,} / {predicted.step_s:.4g} s",
            value=predicted.tokens_per_s,
            unit="tokens/s" if job.sequence_length else "samples/s",
        ),
        Line(
            name="MFU",
            formula="M × FLOP of a micro-batch / (step × peak)",
            substituted=f"{job.num_micro_batches} × {flop:.4g} / ({predicted.step_s:.4g} s × {peak:.4g})",
            value=predicted.mfu,
            unit="",
            source="PaLM (arXiv 2204.02311), appendix B",
        ),
    ]
    return tuple(lines)
