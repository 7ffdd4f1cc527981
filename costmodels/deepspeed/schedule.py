"""The order of DeepSpeed's messages among its compute: gathers at the hooks of modules, buckets as gradients come.

Fetches and buckets are those of `gather.py` and `reduce.py`. Where in a segment they are is known by the order of its
modules and gradients alone; between them its work is shared out in proportion to the elements of the parameters that
are fetched (of the gradients that come), since products of matrices take as long as these are large.

With `overlap_comm`, compute waits for a gather when its first parameter is asked for, and for reductions

- at stages 1 and 2 before the next bucket is sent (`average_tensor`, deepspeed/runtime/zero/stage_1_and_2.py);
- at stage 3 where more than two are under way (`max_param_reduce_events`, stage3.py);
- at the end of each backward (`independent_gradient_partition_epilogue`, both).

Without it, gathers and reductions run on the stream that computes, one after the other.

Source: DeepSpeed 0.19.8, the files named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from costmodels.deepspeed.gather import Gather, gathers
from costmodels.deepspeed.hooks import Hook, hooks
from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.moments import Moment, gradient_moments, hook_moments, work_between
from costmodels.deepspeed.reduce import arrivals, flat_shards, gradient_order
from costmodels.deepspeed.traffic import (
    Sent,
    as_message,
    bucket_messages,
    flat_bucket_messages,
    gather_messages,
    traffic,
)
from costmodels.engine import Assignment, Message
from costmodels.schedule import WHOLE, Compute, Instruction, Part, Schedule, Start, Wait, in_turn
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

UNDER_WAY = {1: 1, 2: 1, 3: 3}
"""Buckets before the last of which has arrived the next one waits, by stage."""


def schedule(workload: Workload, assignment: Assignment, shape: StepShape, knobs: Knobs) -> Schedule:
    """Returns what a rank does in one steady optimizer step.

    Args:
        workload: The traced step.
        assignment: One strategy per class of blocks; only `recompute` is read, the degrees are in `knobs`.
        shape: World size, number of micro-batches and precision.
        knobs: DeepSpeed's settings.
    """
    sent = traffic(workload, assignment, shape, knobs)
    return (*_micro_batches(_Question(workload, assignment, shape, knobs), sent), Part("update", 1, _alone(sent)))


@dataclass(frozen=True, slots=True)
class _Question:
    workload: Workload
    assignment: Assignment
    shape: StepShape
    knobs: Knobs


def _micro_batches(asked: _Question, sent: Sequence[Message]) -> Schedule:
    times, stage = asked.shape.num_micro_batches, asked.knobs.stage
    if stage == 3 and sent:
        order = hooks(asked.workload, asked.assignment, asked.knobs)
        alike = groupby(gathers(asked.workload, order, asked.knobs, times), key=id)
        found = [tuple(equal) for _, equal in alike]
        return in_turn(*((len(equal), _micro_batch(asked, order, equal[0].gathers, True)) for equal in found))
    plain = _micro_batch(asked, (), (), stage == 2)
    if any(message.beside_backward for message in sent):
        return in_turn((times - 1, plain), (1, _micro_batch(asked, (), (), True)))
    return in_turn((times, plain))


def _alone(sent: Iterable[Message]) -> tuple[Instruction, ...]:
    """Returns what comes after the last micro-batch: reductions, flags and norms, the update, gathers."""

    def of(cause: str) -> Iterator[Instruction]:
        for message in sent:
            if message.cause == cause and not message.beside_backward:
                for _ in range(message.count):
                    yield Start(replace(message, count=1))
        yield Wait()

    return (*of("boundary"), *of("control"), Compute("update", -1), *of("update"))


def _micro_batch(
    asked: _Question, order: tuple[Hook, ...], fetched: Sequence[Gather], reduces: bool
) -> tuple[Instruction, ...]:
    """Returns one micro-batch: the work up to each fetch and each full bucket, then what that one sends."""
    buckets = list(_buckets(asked)) if reduces and asked.shape.world_size > 1 else []
    fetches = hook_moments(asked.workload, order)
    happenings = [(moment, 0, number) for number, (moment, _) in enumerate(buckets)]
    happenings += [(moment, 1, number) for number, (_, moment) in enumerate(fetches)]
    happenings.sort()
    gathered_at = {number: tuple(together) for number, together in groupby(fetched, key=lambda gather: gather.fetch)}
    # Of the strategies only what they recompute counts, so that those that do so alike share the answer.
    recomputed = tuple(Strategy(1, 1, 1, 1, strategy.recompute) for strategy in asked.assignment)
    *before, rest = work_between(asked.workload, recomputed, tuple(moment for moment, _, _ in happenings))
    program = _Program(asked)
    for work, (_, is_fetch, number) in zip(before, happenings, strict=True):
        program.compute(work)
        if is_fetch:
            program.fetch(fetches[number][0], gathered_at.get(number, ()))
        else:
            program.reduce(buckets[number][1])
    program.compute(rest)
    return (*program.instructions, Wait())


def _buckets(asked: _Question) -> Iterator[tuple[Moment, tuple[int, ...]]]:
    """Yields each bucket with the moment when it is sent: the next gradient does not fit, or backward ends."""
    order = gradient_order(asked.workload, asked.knobs)
    sizes = list(asked.workload.elements)
    come = gradient_moments(asked.workload, order)
    end = (len(asked.workload.segments) - 1, 1, WHOLE)
    for parameter, bucket in arrivals(order, sizes, asked.knobs.reduce_bucket_size):
        if bucket:
            yield end if parameter is None else come[parameter], bucket


class _Program:
    """The instructions of one micro-batch, and the numbers of the messages among them."""

    def __init__(self, asked: _Question) -> None:
        self.asked = asked
        self.instructions: list[Instruction] = []
        self.started = 0
        self.arriving: dict[int, int] = {}
        """The gather that brings each parameter, until it is waited for."""
        self.carried: dict[int, tuple[int, ...]] = {}
        """The parameters of each gather."""
        self.reductions: list[int] = []
        """The last message of each bucket."""
        workload = asked.workload
        self.shards = flat_shards(workload, asked.shape.world_size)
        self.owners = {index: number for number, block in enumerate(workload.blocks) for index in block.parameters}
        self.starts: dict[tuple[Sent, tuple[int, ...]], Start] = {}
        """Of each kind of message for each set of blocks: equal layers send equal ones."""

    def compute(self, work: Iterable[Compute]) -> None:
        """Adds work; what goes on with the stretch before it, as nothing happened between, becomes one with it."""
        for each in work:
            last = self.instructions[-1] if self.instructions else None
            if isinstance(last, Compute) and (last.work, last.segment, last.end) == (
                each.work,
                each.segment,
                each.begin,
            ):
                self.instructions[-1] = Compute(each.work, each.segment, last.begin, each.end)
            else:
                self.instructions.append(each)

    def fetch(self, hook: Hook, together: Sequence[Gather]) -> None:
        """Adds what one fetch gathers: what it asks for, which it waits for, and what it fetches ahead."""
        if not together and not self.arriving:
            return
        ahead: list[Gather] = []
        for gather in together:
            if set(hook.parameters).isdisjoint(gather.parameters):
                ahead.append(gather)
            else:
                self._gather(gather)
        for parameter in hook.parameters:
            number = self.arriving.get(parameter)
            if number is not None:
                self.instructions.append(Wait(number))
                for other in self.carried[number]:
                    if self.arriving.get(other) == number:
                        del self.arriving[other]
        for gather in ahead:
            self._gather(gather)

    def _gather(self, gather: Gather) -> None:
        asked = self.asked
        kinds = gather_messages(gather, asked.workload, asked.shape, asked.knobs)
        *_, number = [self._start(kind, gather.parameters) for kind in kinds]
        if asked.knobs.overlap_comm:
            self.carried[number] = gather.parameters
            self.arriving.update(dict.fromkeys(gather.parameters, number))

    def reduce(self, bucket: tuple[int, ...]) -> None:
        """Adds what is sent for a bucket, after as many of the earlier ones as the engine waits for."""
        asked = self.asked
        behind = UNDER_WAY[asked.knobs.stage]
        if len(self.reductions) >= behind:
            self.instructions.append(Wait(self.reductions[-behind]))
        if asked.knobs.stage == 3:
            kinds = bucket_messages(bucket, asked.workload, asked.shape, asked.knobs)
        else:
            kinds = flat_bucket_messages(bucket, self.shards, asked.shape, asked.knobs)
        numbers = [self._start(kind, bucket) for kind in kinds]
        self.reductions += numbers[-1:]

    def _start(self, kind: Sent, parameters: Iterable[int]) -> int:
        blocks = tuple(sorted({self.owners[parameter] for parameter in parameters}))
        if (kind, blocks) not in self.starts:
            self.starts[kind, blocks] = Start(as_message(kind, 1, self.asked.knobs), blocks)
        self.instructions.append(self.starts[kind, blocks])
        if not self.asked.knobs.overlap_comm:
            self.instructions.append(Wait(self.started))
        self.started += 1
        return self.started - 1
