"""The parts of a step with what each is computed from: compute, messages, what of them is hidden, and bytes held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from costmodels.communication import CAUSES, communication_time, message_times
from costmodels.compute import NS_PER_S, SEGMENT_NS, UPDATE_NS, update_width
from costmodels.lower import fill_in
from costmodels.memory import at_rest
from costmodels.states import num_block_params, state_widths
from costmodels.workload import Segment
from planner.explain.explanation import Line
from planner.explain.retrace import Retraced
from planner.machine import Machine
from planner.plan import Plan
from planner.report.figures import plural, seconds_text
from planner.report.names import CAUSE_NAMES, operation_text

_SHOWN_SIZES = 3
"""Sizes of message that are listed of one kind, those that take longest; the others are summed."""


def computed(traced: Retraced, machine: Machine) -> Iterator[Line]:
    """Yields what equal segments take in a step, then the updates; with recomputation they sum to the compute."""
    workload, shape, speed = traced.workload, traced.shape, machine.speed
    equal: dict[tuple[str, tuple[float, ...]], list[Segment]] = {}
    for segment in workload.segments:
        equal.setdefault((segment.phase, _numbers(segment, traced, machine)), []).append(segment)
    for (phase, numbers), segments in equal.items():
        name = workload.blocks[segments[0].block].name or "the root module"
        filled = fill_in(SEGMENT_NS, dict(zip(SEGMENT_NS.arguments, numbers, strict=True)))
        again = sum(phase == "forward" and _is_recomputed(traced, segment) for segment in segments)
        for title, count in ((phase, len(segments)), ("recomputation", again)):
            if count and filled.value:
                yield Line(
                    name=f"{title}, {count} × {name}",
                    formula=f"M × {count} × ({filled.formula}) ns",
                    substituted=f"{shape.num_micro_batches} × {count} × ({filled.substituted}) ns",
                    value=shape.num_micro_batches * count * filled.value / NS_PER_S,
                    unit="s",
                    source=filled.source,
                )
    widths = state_widths(shape.precision, shape.optimizer)
    updated: dict[tuple[int, int], int] = {}
    for block in workload.blocks:
        strategy = traced.assignment[block.block_class]
        key = (num_block_params(workload, block)[1], strategy.optim_degree)
        if strategy.offload == "none" and key[0]:
            updated[key] = updated.get(key, 0) + 1
    for (num_trainable, degree), count in updated.items():
        values = (update_width(widths), num_trainable, degree, speed.memory_bytes_per_s)
        filled = fill_in(UPDATE_NS, dict(zip(UPDATE_NS.arguments, values, strict=True)))
        yield Line(
            name=f"update, {plural(count, 'block')}",
            formula=f"{count} × ({filled.formula}) ns",
            substituted=f"{count} × ({filled.substituted}) ns",
            value=count * filled.value / NS_PER_S,
            unit="s",
            source=filled.source,
        )


def _numbers(segment: Segment, traced: Retraced, machine: Machine) -> tuple[float, ...]:
    """Returns what the formula of a segment takes, in its order."""
    size, speed = traced.shape.micro_batch_size, machine.speed
    return (
        segment.flop.at(size),
        speed.matmul_flop_per_s,
        segment.product_io_bytes.at(size),
        segment.io_bytes.at(size),
        speed.memory_bytes_per_s,
        segment.num_operators,
        speed.operator_launch_s,
    )


def _is_recomputed(traced: Retraced, segment: Segment) -> bool:
    block = traced.workload.blocks[segment.block]
    return block.recomputable and traced.assignment[block.block_class].recompute == "full"


def sent(traced: Retraced, machine: Machine) -> Iterator[Line]:
    """Yields for each kind of message its seconds on the wire: its sizes with their counts."""
    messages = traced.engine.traffic(traced.workload, traced.assignment, traced.shape)
    kinds: dict[tuple[str, int, int], Counter[tuple[int, int]]] = {}
    for message, (one_ns, _) in zip(messages, message_times(messages, machine.network, machine.speed), strict=True):
        key = (message.operation, message.degree_from, message.degree_to)
        kinds.setdefault(key, Counter())[one_ns, message.message_bytes] += message.count
    for kind, sizes in sorted(kinds.items()):
        longest = sorted(sizes.items(), key=lambda item: item[0][0] * item[1], reverse=True)
        terms = [
            f"{count:,} × {seconds_text(one_ns / NS_PER_S)} of {num_bytes:,} bytes"
            for (one_ns, num_bytes), count in longest[:_SHOWN_SIZES]
        ]
        if others := longest[_SHOWN_SIZES:]:
            others_ns = sum(one_ns * count for (one_ns, _), count in others)
            terms.append(f"{seconds_text(others_ns / NS_PER_S)} of {sum(count for _, count in others):,} others")
        yield Line(
            name=operation_text(*kind),
            formula="sum over sizes of count × seconds of one",
            substituted=" + ".join(terms),
            value=sum(one_ns * count for (one_ns, _), count in longest) / NS_PER_S,
            unit="s",
        )


def hidden(plan: Plan, traced: Retraced, machine: Machine) -> Iterator[Line]:
    """Yields for each cause what is exposed: what is sent less what compute hides of it."""
    messages = traced.engine.traffic(traced.workload, traced.assignment, traced.shape)
    duration = communication_time(messages, machine.network, traced.shape.num_micro_batches, machine.speed).duration
    for cause in CAUSES:
        sent_s = getattr(duration, f"{cause}_ns") / NS_PER_S
        exposed_s = getattr(plan.predicted.exposed, f"{cause}_s")
        if sent_s:
            yield Line(
                name=CAUSE_NAMES[f"{cause}_s"],
                formula="sent - hidden behind compute",
                substituted=f"{sent_s:.6g} - {sent_s - exposed_s:.6g} s",
                value=exposed_s,
                unit="s",
                source="costmodels/step.py: all but the longest message of a phase hides behind its compute",
            )


def held(plan: Plan, traced: Retraced) -> Iterator[Line]:
    """Yields what each component at the peak is made of, then the bytes at rest, while building and the budget."""
    memory = plan.predicted.memory
    engine = traced.engine.memory(traced.workload, traced.assignment, traced.shape)
    rest = asdict(at_rest(traced.workload, engine))
    for name, num_bytes in memory.components:
        if num_bytes:
            resting = rest[name]
            yield Line(
                name=name.replace("_", " "),
                formula="at rest + held at that moment",
                substituted=f"{resting:,} + {num_bytes - resting:,} bytes",
                value=num_bytes,
                unit="bytes",
            )
    resting_parts = [(name.replace("_", " "), amount) for name, amount in rest.items() if amount]
    yield Line(
        name="at rest",
        formula=" + ".join(name for name, _ in resting_parts),
        substituted=" + ".join(f"{amount:,}" for _, amount in resting_parts) + " bytes",
        value=memory.at_rest_bytes,
        unit="bytes",
    )
    yield Line(
        name="while building",
        formula="engine and model while made + registered buffers",
        substituted=f"{engine.init_peak_bytes:,} + {traced.workload.buffer_bytes:,} bytes",
        value=memory.init_peak_bytes,
        unit="bytes",
    )
