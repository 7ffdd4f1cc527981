"""The walk over a step that finds its greatest memory: activations of the workload, the rest from an engine.

At each moment a rank holds

    at rest + activations alive + the segment's own peak + what the engine holds during the segment + reserved.

Forward adds to what is alive the bytes that it saves, backward takes them away. A recomputed block leaves only its
inputs and outputs; its backward first runs its forward again, which brings back the rest. So every moment's bytes are
affine in the booleans "this class of blocks is recomputed" as far as the engine's own bytes are. Whole numbers
throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodels.engine import Assignment, Components, Course, EngineMemory
from costmodels.places import AGAIN, ENTERING, Places, places
from costmodels.strategy import StepShape
from costmodels.workload import Workload


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
    walk = _walk(workload, engine_memory, assignment)
    bytes_at = walk.bytes_at_places(shape)
    update = _update(engine_memory)
    # The first of equal peaks, so that two runs name the same phase.
    peak = walk.moment(workload, int(np.argmax(bytes_at)), shape) if len(bytes_at) else update
    if update.num_bytes > peak.num_bytes:
        peak = update
    components = rest + peak.held + Components(activations=peak.activation_bytes, reserved=reserved_bytes)
    return StepMemory(
        peak_bytes=components.total_bytes,
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
    walk = _walk(workload, engine_memory, assignment)
    bytes_at = walk.bytes_at_places(shape)
    ends = (*walk.places.moments[1:].tolist(), len(bytes_at))
    worst = (
        first + int(np.argmax(bytes_at[first:end]))
        for first, end in zip(walk.places.moments.tolist(), ends, strict=True)
    )
    found = (*(walk.moment(workload, place, shape) for place in worst), _update(engine_memory))
    return tuple(replace(moment, num_bytes=always_bytes + moment.num_bytes) for moment in found)


def moments_bytes(
    workload: Workload, engine_memory: EngineMemory, assignment: Assignment, shape: StepShape
) -> NDArray[np.int64]:
    """Returns the bytes of each of `moments`, without what is reserved: all that a choice between strategies needs."""
    walk = _walk(workload, engine_memory, assignment)
    found = np.array([engine_memory.during_update.total_bytes], np.int64)
    if workload.segments:
        found = np.append(np.maximum.reduceat(walk.bytes_at_places(shape), walk.places.moments), found)
    return found + at_rest(workload, engine_memory).total_bytes


@dataclass(frozen=True, slots=True)
class _Walk:
    """An engine's bytes laid over the places of a step."""

    engine_memory: EngineMemory
    places: Places

    def bytes_at_places(self, shape: StepShape) -> NDArray[np.int64]:
        """Returns activations and what the engine holds beyond at rest, at each place."""
        return self.places.activation_bytes(shape.micro_batch_size) + self._held_bytes()

    def moment(self, workload: Workload, place: int, shape: StepShape) -> Moment:
        """Returns the moment that has its most bytes at this place."""
        segment = workload.segments[self.places.segments[place]]
        kind = int(self.places.kinds[place])
        activation_bytes = int(self.places.activation_bytes(shape.micro_batch_size)[place])
        held = self._held(place)
        return Moment(
            f"{'recomputation' if kind == AGAIN else segment.phase} of "
            f"{workload.blocks[segment.block].name or 'the root module'}",
            activation_bytes,
            held,
            activation_bytes + held.total_bytes,
        )

    def _held(self, place: int) -> Components:
        """Returns what the engine holds beyond at rest at one place."""
        number, memory = int(self.places.segments[place]), self.engine_memory
        if self.places.kinds[place] == ENTERING:
            return memory.entering_segment[number]
        held = memory.throughout[number] if memory.throughout else Components()
        if memory.course is None:
            return held
        parts = memory.course.segments[number]
        told = len(parts) == self.places.lengths[number]
        return held + (parts[self.places.positions[place]] if told else memory.course.worst[number])

    def _held_bytes(self) -> NDArray[np.int64]:
        """Returns the bytes of the same, at each place."""
        memory, segments = self.engine_memory, self.places.segments
        found = np.zeros(len(segments), np.int64)
        if memory.throughout:
            found += np.array([held.total_bytes for held in memory.throughout], np.int64)[segments]
        if memory.course is not None:
            found += self._course_bytes(memory.course)
        if memory.entering_segment:
            entering_bytes = np.array([held.total_bytes for held in memory.entering_segment], np.int64)
            found = np.where(self.places.kinds == ENTERING, entering_bytes[segments], found)
        return found

    def _course_bytes(self, course: Course) -> NDArray[np.int64]:
        """Returns what changes with the gradients; a segment's worst where it is not told when that is."""
        segments = self.places.segments
        lengths = np.array(course.lengths, np.int64)
        told = lengths == np.array(self.places.lengths, np.int64)
        part = (np.cumsum(lengths) - lengths)[segments] + np.where(told[segments], self.places.positions, 0)
        found: NDArray[np.int64] = course.total_bytes[part]
        if not told.all():
            worst_bytes = np.array([held.total_bytes for held in course.worst], np.int64)
            found = np.where(told[segments], found, worst_bytes[segments])
        return found


def _walk(workload: Workload, engine_memory: EngineMemory, assignment: Assignment) -> _Walk:
    return _Walk(engine_memory, places(workload, assignment, with_entering=bool(engine_memory.entering_segment)))


def _update(engine_memory: EngineMemory) -> Moment:
    held = engine_memory.during_update
    return Moment("update", 0, held, held.total_bytes)
