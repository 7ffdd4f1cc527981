"""Plays an engine's schedule on a machine: a timeline of compute and communication, event by event.

Compute runs its program in order, and stands still where it waits for a message. A message begins when all before it
that load a level of its own are over: so messages of one kind of group run in the order in which they were started,
two kinds that share links take turns on them (which takes as long as sharing their bandwidth), and kinds with no level
in common run at once. That all groups of one kind run at once is in a message's own time.

Where communication takes the ranks' own cores (overlap phi < 1), what runs at once slows each other down: n of compute
and messages run at 1 / (1 + (n - 1) (1 - phi)) of their speed. So c of compute beside k of communication take
c + k - phi min(c, k), as in `costmodels.step`. At phi = 0 that is the sum, and messages take turns whatever their
levels.

Time is counted in `OVERLAP_PARTS` of a nanosecond, so that it is whole; each part of the step ends on a nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from costmodels.communication import CAUSES, ByCause, message_times
from costmodels.compute import OVERLAP_PARTS, compute_time, segment_ns
from costmodels.engine import Assignment, Cause
from costmodels.geometry import geometry
from costmodels.schedule import WHOLE, Compute, Part, Schedule, Start, Wait
from costmodels.strategy import StepShape
from costmodels.workload import Workload
from planner.machine import Machine
from planner.simulate.timeline import Event, Timeline, TimelinePart


def simulate(
    workload: Workload, schedule: Schedule, assignment: Assignment, shape: StepShape, machine: Machine
) -> Timeline:
    """Returns the timeline of one optimizer step, all micro-batches and the update.

    Args:
        workload: The traced step.
        schedule: What a rank does, in order: `Engine.schedule` with the same arguments.
        assignment: One strategy per class of blocks.
        shape: Micro-batches, precision, optimizer.
        machine: Links and devices.
    """
    update_ns = compute_time(workload, assignment, shape, machine.speed).update_ns
    segments_ns = [segment_ns(segment, shape.micro_batch_size, machine.speed) for segment in workload.segments]
    blocks = [(segment.block,) for segment in workload.segments]
    step = _Step((*segments_ns, update_ns), (*blocks, ()), machine)
    return Timeline(tuple(step.play(part) for part in schedule))


@dataclass(frozen=True, slots=True)
class _Step:
    """What takes how long; the last entry, which -1 names, is the update's."""

    durations_ns: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    machine: Machine

    def play(self, part: Part) -> TimelinePart:
        """Returns the timeline of one part."""
        played = _Playing(self, part)
        played.run()
        duration_ns = -(-played.now // OVERLAP_PARTS)
        return TimelinePart(
            part.name,
            part.repeats,
            duration_ns,
            played.compute_ns,
            _whole(played.exposed, duration_ns - played.compute_ns),
            tuple(sorted(played.events, key=lambda event: (event.start_ns, event.stream, event.end_ns))),
        )

    def compute_ns(self, compute: Compute) -> int:
        """Returns the nanoseconds of a stretch, such that those of a segment sum to it."""
        whole_ns = self.durations_ns[compute.segment]
        return whole_ns * compute.end // WHOLE - whole_ns * compute.begin // WHOLE


@dataclass(slots=True)
class _Running:
    """Something that runs: when it began, and the nanoseconds that are left of it."""

    begin: int
    left_ns: int


class _Playing:
    """One part as it is played. Moments are in `OVERLAP_PARTS` of a nanosecond."""

    def __init__(self, step: _Step, part: Part) -> None:
        self.step = step
        self.program = part.instructions
        self.position = 0
        """Of the instruction that compute has come to."""
        overlap_parts = int(min(1.0, step.machine.speed.overlap) * OVERLAP_PARTS)
        self.alone, self.further = OVERLAP_PARTS, OVERLAP_PARTS - overlap_parts
        """Moments that a nanosecond of work takes, and those that it takes more for each other that runs."""
        self.starts = [each for each in part.instructions if isinstance(each, Start)]
        messages = tuple(start.message for start in self.starts)
        self.durations_ns = [
            each_ns for each_ns, _ in message_times(messages, step.machine.network, step.machine.speed)
        ]
        self.levels = [1] * len(messages)
        """What each message loads, a bit for a level: all the same where ranks send with nothing but their cores."""
        if overlap_parts:
            sizes = tuple(level.size for level in step.machine.network.levels)
            self.levels = [_levels(message.degree_from, message.degree_to, sizes) for message in messages]
        self.started = 0
        self.queued: list[int] = []
        self.sending: dict[int, _Running] = {}
        self.over: set[int] = set()
        self.computing: _Running | None = None
        self.now = 0
        self.compute_ns = 0
        self.exposed: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
        self.events: list[Event] = []

    def run(self) -> None:
        """Plays until the program is at its end and all messages have arrived."""
        while True:
            self._advance_program()
            self._send()
            if self.computing is None and not self.sending:
                return
            self._pass_time()

    def _advance_program(self) -> None:
        """Goes on to the next stretch of compute, or to a message that has not arrived."""
        while self.computing is None and self.position < len(self.program):
            instruction = self.program[self.position]
            if isinstance(instruction, Start):
                self.queued.append(self.started)
                self.started += 1
            elif isinstance(instruction, Compute):
                duration_ns = self.step.compute_ns(instruction)
                self.compute_ns += duration_ns
                self.computing = _Running(self.now, duration_ns) if duration_ns else None
                if self.computing is not None:
                    return
            elif not self._has_arrived(instruction):
                return
            self.position += 1

    def _has_arrived(self, wait: Wait) -> bool:
        """Messages that take no time are over as soon as nothing is before them."""
        self._send()
        if wait.number is None:
            return not self.queued and not self.sending
        return wait.number in self.over

    def _send(self) -> None:
        """Begins what is queued and has its levels for itself: nothing earlier runs or waits there.

        A message that sends on another one's result holds its levels while it waits: so the order stays.
        """
        if not self.queued:
            return
        busy = 0
        for number in self.sending:
            busy |= self.levels[number]
        waiting: list[int] = []
        for number in self.queued:
            levels = self.levels[number]
            after = self.starts[number].after
            if levels & busy or (after is not None and after not in self.over):
                waiting.append(number)
            elif self.durations_ns[number] == 0:
                self._arrive(number, self.now)
                continue
            else:
                self.sending[number] = _Running(self.now, self.durations_ns[number])
            busy |= levels
        self.queued = waiting

    def _pass_time(self) -> None:
        """Goes on to the moment when the first of all that runs is over."""
        computing = self.computing
        if not self.sending:
            assert computing is not None, "something runs"
            self.now += computing.left_ns * self.alone
            self._end_compute(computing)
            return
        running = [*self.sending.values()] if computing is None else [*self.sending.values(), computing]
        passed_ns = min([each.left_ns for each in running])
        pace = self.alone + (len(running) - 1) * self.further
        self.now += passed_ns * pace
        exposed = passed_ns * (pace if computing is None else pace - self.alone)
        if exposed:
            self.exposed[self.starts[min(self.sending)].message.cause] += exposed
        is_over = False
        for each in running:
            each.left_ns -= passed_ns
            is_over |= each.left_ns == 0 and each is not computing
        if computing is not None and computing.left_ns == 0:
            self._end_compute(computing)
        if not is_over:
            return
        for number, sending in list(self.sending.items()):
            if sending.left_ns == 0:
                del self.sending[number]
                self._arrive(number, sending.begin)

    def _end_compute(self, computed: _Running) -> None:
        instruction = self.program[self.position]
        assert isinstance(instruction, Compute)
        blocks = self.step.blocks[instruction.segment]
        self.events.append(Event("compute", instruction.work, blocks, *self._ns(computed.begin)))
        self.computing = None
        self.position += 1

    def _arrive(self, number: int, begin: int) -> None:
        self.over.add(number)
        start = self.starts[number]
        self.events.append(Event("communication", start.message.cause, start.blocks, *self._ns(begin), start.message))

    def _ns(self, begin: int) -> tuple[int, int]:
        return begin // OVERLAP_PARTS, -(-self.now // OVERLAP_PARTS)


@lru_cache(maxsize=4096)
def _levels(degree_from: int, degree_to: int, sizes: tuple[int, ...]) -> int:
    """Returns the levels that groups between two degrees load, a bit for each."""
    return sum(1 << each.level for each in geometry(sizes, degree_from, degree_to))


def _whole(exposed: dict[Cause, int], total_ns: int) -> ByCause:
    """Returns whole nanoseconds by cause that sum to the total; what rounding leaves is the greatest cause's."""
    whole = {cause: moments // OVERLAP_PARTS for cause, moments in exposed.items()}
    greatest = max(CAUSES, key=exposed.__getitem__)
    whole[greatest] += total_ns - sum(whole.values())
    return ByCause(*(whole[cause] for cause in CAUSES))
