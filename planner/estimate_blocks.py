"""Fills the table of per-class choices: what each strategy costs each block, as whole ns and bytes.

Costs come from the functions that predict a plan (`costmodels.fsdp`, `costmodels.compute`), block by block; a total of
the table is the exact prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from costmodels.communication import sum_messages
from costmodels.compute import UPDATE_NS, Computed, overlappable_ns, segment_ns, update_width
from costmodels.degrees import legal_degrees, nests
from costmodels.engine import Cause, Message
from costmodels.fsdp.holds import manner_of
from costmodels.fsdp.memory import output_bytes, slice_bytes, spread_bytes
from costmodels.fsdp.traffic import BlockTraffic, is_sent
from costmodels.states import num_block_params, state_bytes, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.block_table import BlockGroup, BlockTable, DegreesCost, SecondaryCost, Sent
from planner.block_walk import stretches
from planner.machine import Machine

_ONCE: tuple[Cause, ...] = ("boundary", "update")
"""Sent once in a step; the longest message of all others is exposed in each micro-batch."""


class _Kind(NamedTuple):
    """What equal blocks have in common."""

    block_class: int
    num_params: int
    num_trainable: int
    differentiated: bool
    recomputable: bool
    forward: Computed
    """In one micro-batch, of a block that can be recomputed."""


def estimate_blocks(
    workload: Workload, machine: Machine, shape: StepShape, may_recompute: tuple[bool, ...]
) -> BlockTable:
    """Returns what every strategy costs every block of the ideal schedule.

    Args:
        workload: The traced step.
        machine: Links and devices; its levels say which degrees there are.
        shape: The micro-batch.
        may_recompute: What can be chosen for blocks that can be recomputed: (False,), (True,) or both.
    """
    compute = _compute(workload, machine, shape)
    kinds: dict[_Kind, list[int]] = {}
    for index, kind in enumerate(_kinds(workload, compute)):
        kinds.setdefault(kind, []).append(index)
    groups = tuple(_group(kind, tuple(blocks), machine, shape, may_recompute) for kind, blocks in kinds.items())
    forward, backward = (
        sum((computed for (phase, _), computed in compute.items() if phase == name), Computed())
        for name in ("forward", "backward")
    )
    held = stretches(workload, groups, shape)
    return BlockTable(shape, groups, forward, backward, held, workload.buffer_bytes)


def _compute(workload: Workload, machine: Machine, shape: StepShape) -> dict[tuple[str, int], Computed]:
    """Returns the compute of each (phase, block) in one micro-batch."""
    found: dict[tuple[str, int], Computed] = {}
    for segment in workload.segments:
        duration_ns = segment_ns(segment, shape.micro_batch_size, machine.speed)
        key = (segment.phase, segment.block)
        found[key] = found.get(key, Computed()) + Computed(duration_ns, overlappable_ns(duration_ns, machine.speed))
    return found


def _kinds(workload: Workload, compute: dict[tuple[str, int], Computed]) -> Iterable[_Kind]:
    for index, block in enumerate(workload.blocks):
        yield _Kind(
            block.block_class,
            *num_block_params(workload, block),
            ("backward", index) in compute,
            block.recomputable,
            compute.get(("forward", index), Computed()) if block.recomputable else Computed(),
        )


def _group(
    kind: _Kind, blocks: tuple[int, ...], machine: Machine, shape: StepShape, may_recompute: tuple[bool, ...]
) -> BlockGroup:
    degrees = legal_degrees(machine.level_sizes)
    costs = _Costs(kind, machine, shape)
    return BlockGroup(
        block_class=kind.block_class,
        blocks=blocks,
        recomputable=kind.recomputable,
        least_recomputed=len(blocks) if kind.recomputable and False not in may_recompute else 0,
        most_recomputed=len(blocks) if kind.recomputable and True in may_recompute else 0,
        again=kind.forward,
        degrees=tuple(costs.of_degrees(degrees)),
        secondaries=tuple(costs.of_secondaries(degrees)),
    )


class _Costs:
    """The costs of a block by the degrees that decide them: each message is timed once."""

    def __init__(self, kind: _Kind, machine: Machine, shape: StepShape) -> None:
        self._kind, self._machine, self._shape = kind, machine, shape
        self._widths = state_widths(shape.precision, shape.optimizer)

    def of_degrees(self, degrees: tuple[int, ...]) -> Iterator[DegreesCost]:
        """Yields every (p, g, o) that nests, in ascending order."""
        world_size = degrees[-1]
        forward = {p: self._sent([self._block(p, p, p, p).forward()]) for p in degrees}
        reduce = {g: self._sent(self._block(1, 1, g, g).backward()) for g in degrees}
        boundary, update = {}, {}
        optimizer_ns = {o: self._optimizer_ns(o) for o in degrees}
        for o in degrees:
            for d in degrees:
                if o % d == 0:
                    boundary[d, o] = self._sent(self._block(1, 1, d, o).boundary())
                    update[d, o] = self._sent([self._block(d, d, d, o).update()])
        for p, g, o in ((p, g, o) for p in degrees for g in degrees for o in degrees if nests(p, g, o, world_size)):
            strategy = Strategy(p, p, g, o)
            states = state_bytes(self._kind.num_params, self._kind.num_trainable, strategy, self._widths)
            yield DegreesCost(
                *(p, g, o),
                forward=forward[p],
                reduced=reduce[g],
                boundary=boundary[g, o],
                spread=update[p, o],
                optimizer_ns=optimizer_ns[o],
                rest_bytes=states.total_bytes,
                update_bytes=slice_bytes(self._kind.num_trainable, strategy, self._shape),
                spread_bytes=spread_bytes(self._kind.num_trainable, strategy, self._widths),
                output_bytes=output_bytes(self._kind.num_trainable, strategy, self._widths),
            )

    def of_secondaries(self, degrees: tuple[int, ...]) -> Iterator[SecondaryCost]:
        """Yields every (p, s), in ascending order."""
        # A block that reduces nothing sends in backward what it gathers.
        gather = {s: self._sent(self._block(s, s, 1, s).backward()) for s in degrees}
        for p, s in ((p, s) for p in degrees for s in degrees if p % s == 0):
            strategy = Strategy(p, s, p, p)
            states = state_bytes(self._kind.num_params, self._kind.num_trainable, strategy, self._widths)
            yield SecondaryCost(p, s, manner_of(strategy).gathered, gather[s], states.secondary)

    def _block(self, p: int, s: int, g: int, o: int) -> BlockTraffic:
        strategy, kind = Strategy(p, s, g, o), self._kind
        return BlockTraffic(
            strategy, kind.num_params, kind.num_trainable, kind.differentiated, self._shape, self._widths
        )

    def _sent(self, messages: Iterable[Message]) -> Sent:
        sent = sum_messages(
            tuple(each for each in messages if is_sent(each)), self._machine.network, self._machine.speed
        )
        duration_ns = sum(sent.duration.values())
        longest_ns = [
            part_ns * (1 if cause in _ONCE else self._shape.num_micro_batches)
            for cause, bare in sent.bare.items()
            for part_ns, _ in bare
        ]
        return Sent(duration_ns, duration_ns - sum(sent.overlappable.values()), max(longest_ns, default=0))

    def _optimizer_ns(self, optim_degree: int) -> int:
        bytes_per_s = self._machine.speed.memory_bytes_per_s
        return UPDATE_NS(update_width(self._widths), self._kind.num_trainable, optim_degree, bytes_per_s)
