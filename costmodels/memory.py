"""The walk over a step that finds its greatest memory: activations of the workload, the rest from an engine.

At each moment a rank holds

    at rest + activations alive + the segment's own peak + what the engine holds during the segment + reserved.

Forward adds to what is alive the bytes that it saves, backward takes them away. A recomputed block leaves only its
inputs and outputs; its backward first runs its forward again, which brings back the rest. So every moment's bytes are
affine in the booleans "this class of blocks is recomputed" as far as the engine's own bytes are. Whole numbers
throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costmodels.engine import Assignment, Components, EngineMemory
from costmodels.strategy import StepShape
from costmodels.workload import Timeline, Workload


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of the step that can be its peak. The same moments, in the same order, for every assignment."""

    phase: str
    """For people: `forward of BLOCK`, `recomputation of BLOCK`, `backward of BLOCK` or `update`."""
    activation_bytes: int
    held: Components
    """What the engine holds beyond `at_rest`."""
    num_bytes: int
    """Everything, at rest and reserved bytes included."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes on the fullest rank. Each of the three figures includes what is reserved."""

    peak_bytes: int
    at_rest_bytes: int
    init_peak_bytes: int
    peak_phase: str
    """When the peak is, as `Moment.phase`."""
    components: Components
    """What the peak consists of; their sum is `peak_bytes`."""


def step_memory(
    workload: Workload,
    engine_memory: EngineMemory,
    assignment: Assignment,
    shape: StepShape,
    reserved_bytes: int = 0,
) -> StepMemory:
    """Returns the peak of a steady step, the bytes at rest and the peak while building.

    Args:
        workload: The traced step.
        engine_memory: What the engine holds, from `Engine.memory` with the same arguments.
        assignment: One strategy per class of blocks; its `recompute` counts for blocks that are `recomputable`.
        shape: The micro-batch size is what activations grow with.
        reserved_bytes: Context, communicators and what the allocator cannot give, the same at all times.
    """
    rest = at_rest(workload, engine_memory)
    found = moments(workload, engine_memory, assignment, shape, reserved_bytes)
    # The first of equal peaks, so that two runs name the same phase.
    peak = max(found, key=lambda moment: moment.num_bytes)
    components = rest + peak.held + Components(activations=peak.activation_bytes, reserved=reserved_bytes)
    return StepMemory(
        peak_bytes=peak.num_bytes,
        at_rest_bytes=rest.total_bytes + reserved_bytes,
        init_peak_bytes=engine_memory.init_peak_bytes + workload.buffer_bytes + reserved_bytes,
        peak_phase=peak.phase,
        components=components,
    )


def at_rest(workload: Workload, engine_memory: EngineMemory) -> Components:
    """Returns what is held between two steps: the engine's part, and the model's registered buffers with P."""
    rest = engine_memory.at_rest
    return replace(rest, parameters=rest.parameters + workload.buffer_bytes)


def moments(
    workload: Workload,
    engine_memory: EngineMemory,
    assignment: Assignment,
    shape: StepShape,
    reserved_bytes: int = 0,
) -> tuple[Moment, ...]:
    """Returns every moment of a steady step that can be its peak, in order of execution.

    A backward segment gives two: the recomputation of its block, and the backward itself. Without recomputation the
    first is what is alive when backward begins, never a peak, so that the number of moments does not depend on it.
    A segment that an engine enters with more than it holds at the peak of the activations gives one before them.
    """
    always_bytes = at_rest(workload, engine_memory).total_bytes + reserved_bytes
    return tuple(
        Moment(phase, activation_bytes, held, always_bytes + activation_bytes + held.total_bytes)
        for phase, activation_bytes, held in _walk(workload, engine_memory, assignment, shape)
    )


def _walk(
    workload: Workload, engine_memory: EngineMemory, assignment: Assignment, shape: StepShape
) -> Iterator[tuple[str, int, Components]]:
    """Yields (phase, activation bytes, what the engine holds beyond at rest)."""
    size = shape.micro_batch_size
    alive_bytes = workload.input_bytes.at(size)
    all_full = all(assignment[block.block_class].recompute == "full" for block in workload.blocks if block.recomputable)
    entering = engine_memory.entering_segment or (None,) * len(workload.segments)
    for number, (segment, entered) in enumerate(zip(workload.segments, entering, strict=True)):
        block = workload.blocks[segment.block]
        is_full = assignment[block.block_class].recompute == "full" if block.recomputable else all_full
        recomputed = segment.recomputed if is_full else None
        timeline = recomputed.timeline if recomputed else segment.timeline
        name = block.name or "the root module"
        if entered is not None:
            yield f"{segment.phase} of {name}", alive_bytes, entered
        course = _course(engine_memory, number, len(timeline.completed))
        if segment.phase == "backward":
            again = recomputed.again if recomputed else _NOTHING
            yield f"recomputation of {name}", alive_bytes + again.peak_bytes(size), course[0]
            alive_bytes += again.net_bytes.at(size)
        peak_bytes, held = max(_laid_over(timeline, size, course), key=lambda found: found[0] + found[1].total_bytes)
        yield f"{segment.phase} of {name}", alive_bytes + peak_bytes, held
        alive_bytes += timeline.net_bytes.at(size)
    yield "update", 0, engine_memory.during_update


def _course(engine_memory: EngineMemory, number: int, num_gradients: int) -> tuple[Components, ...]:
    """Returns what the engine holds through a segment of so many gradients: as each comes, and in between."""
    course = engine_memory.course[number] if engine_memory.course else ()
    if len(course) == 2 * num_gradients + 1:
        return course
    return (engine_memory.during_segment[number],) * (2 * num_gradients + 1)


def _laid_over(timeline: Timeline, size: int, course: tuple[Components, ...]) -> Iterator[tuple[int, Components]]:
    """Yields the activations and what the engine holds: between the moments at which gradients come, and at them."""
    yield from zip(timeline.peaks_bytes(size), course[::2], strict=True)
    yield from zip(timeline.completing_bytes(size), course[1::2], strict=True)


_NOTHING = Timeline()
