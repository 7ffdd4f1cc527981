"""Fills the table of per-class choices: what each strategy costs each block, as whole ns and bytes.

Costs come from the functions that predict a plan (`costmodels.fsdp`, `costmodels.compute`), block by block; a total of
the table is the exact prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import NamedTuple

from costmodels.communication import sum_messages
from costmodels.compute import UPDATE_NS, Computed, overlappable_ns, segment_ns, update_width
from costmodels.degrees import legal_degrees, nests
from costmodels.engine import Message
from costmodels.fsdp.held_bytes import held_bytes
from costmodels.fsdp.held_bytes import least_bytes as least_held_bytes
from costmodels.fsdp.holds import Kind, manner_of
from costmodels.fsdp.memory import slice_bytes
from costmodels.fsdp.quantized import residual_bytes, slice_run_bytes
from costmodels.fsdp.sizes import BlockSizes, block_sizes
from costmodels.fsdp.states import block_state_bytes
from costmodels.fsdp.traffic import BlockTraffic, control, gathered_blocks, is_sent
from costmodels.states import StateBytes, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.block_table import Apart, BlockGroup, BlockTable, GradCost, ParamCost, SecondaryCost, Sent, manners_of
from planner.block_totals import least_bytes
from planner.block_walk import block_walk
from planner.lossy_choice import EXACT, Lossy, LossyChoice
from planner.machine import Machine


class _Sizes(NamedTuple):
    """What decides the messages and states of a block."""

    sizes: BlockSizes
    is_run: bool
    differentiated: bool


class _Kind(NamedTuple):
    """What equal blocks have in common."""

    block_class: int
    sizes: _Sizes
    recomputable: bool
    forward: Computed
    """In one micro-batch, of a block that can be recomputed."""


def estimate_blocks(
    workload: Workload,
    machine: Machine,
    shapes: Sequence[StepShape],
    may_recompute: tuple[bool, ...],
    budget_bytes: int | None = None,
    lossy: Lossy = EXACT,
) -> tuple[BlockTable, ...]:
    """Returns what every strategy costs every block of the ideal schedule, one table for each micro-batch that can fit.

    Args:
        workload: The traced step.
        machine: Links and devices; its levels say which degrees there are.
        shapes: The micro-batches, smallest first.
        may_recompute: What can be chosen for blocks that can be recomputed: (False,), (True,) or both.
        budget_bytes: Bytes of device memory; None: no end of them.
        lossy: What is quantized wherever that is faster.
    """
    costs = _AllCosts(machine, shapes[0], lossy)
    every = (_table(workload, machine, shape, may_recompute, costs) for shape in shapes)
    # More samples at once never need less.
    return tuple(takewhile(lambda table: budget_bytes is None or least_bytes(table) <= budget_bytes, every))


def _table(
    workload: Workload, machine: Machine, shape: StepShape, may_recompute: tuple[bool, ...], costs: _AllCosts
) -> BlockTable:
    compute = _compute(workload, machine, shape)
    kinds: dict[_Kind, list[int]] = {}
    for index, kind in enumerate(_kinds(workload, compute)):
        kinds.setdefault(kind, []).append(index)
    groups = tuple(_group(kind, tuple(blocks), shape, may_recompute, costs) for kind, blocks in kinds.items())
    forward, backward = (
        sum((computed for (phase, _), computed in compute.items() if phase == name), Computed())
        for name in ("forward", "backward")
    )
    held = block_walk(workload, groups, shape)
    control_ns = sum(sum_messages(control(shape), machine.network, machine.speed).duration.values())
    return BlockTable(shape, groups, forward, backward, *held, workload.buffer_bytes, control_ns)


def _compute(workload: Workload, machine: Machine, shape: StepShape) -> dict[tuple[str, int], Computed]:
    """Returns the compute of each (phase, block) in one micro-batch."""
    found: dict[tuple[str, int], Computed] = {}
    for segment in workload.segments:
        duration_ns = segment_ns(segment, shape.micro_batch_size, machine.speed)
        key = (segment.phase, segment.block)
        found[key] = found.get(key, Computed()) + Computed(duration_ns, overlappable_ns(duration_ns, machine.speed))
    return found


def _kinds(workload: Workload, compute: dict[tuple[str, int], Computed]) -> Iterable[_Kind]:
    run, differentiated = gathered_blocks(workload)
    for index, (block, sizes) in enumerate(zip(workload.blocks, block_sizes(workload), strict=True)):
        yield _Kind(
            block.block_class,
            _Sizes(sizes, index in run, index in differentiated),
            block.recomputable,
            compute.get(("forward", index), Computed()) if block.recomputable else Computed(),
        )


def _group(
    kind: _Kind, blocks: tuple[int, ...], shape: StepShape, may_recompute: tuple[bool, ...], costs: _AllCosts
) -> BlockGroup:
    params, grads, secondaries = costs.of(kind.sizes, shape.num_micro_batches)
    return BlockGroup(
        blocks=blocks,
        has_params=bool(kind.sizes.sizes.parameters),
        recomputable=kind.recomputable,
        least_recomputed=len(blocks) if kind.recomputable and False not in may_recompute else 0,
        most_recomputed=len(blocks) if kind.recomputable and True in may_recompute else 0,
        again=kind.forward,
        params=params,
        grads=grads,
        secondaries=secondaries,
        pairs=costs.pairs if kind.sizes.sizes.parameters else (),
        manners=manners_of(secondaries, grads),
    )


_Parts = tuple[tuple[ParamCost, ...], tuple[GradCost, ...], tuple[SecondaryCost, ...]]


class _AllCosts:
    """The costs of blocks by their sizes: each is the same at all micro-batches but for their number."""

    def __init__(self, machine: Machine, shape: StepShape, lossy: Lossy) -> None:
        self._machine, self._shape = machine, replace(shape, num_micro_batches=1)
        self._lossy = LossyChoice(lossy, machine)
        self._degrees = legal_degrees(machine.level_sizes)
        self._known: dict[_Sizes, _Parts] = {}
        self.pairs = _pairs(self._degrees)

    def of(self, sizes: _Sizes, times: int) -> _Parts:
        """Returns what a step of so many micro-batches costs by (p, o), by (g, o) and by (p, s)."""
        if sizes not in self._known:
            costs = _Costs(sizes, self._machine, self._shape, self._lossy)
            degrees = self._degrees if sizes.sizes.parameters else (1,)
            self._known[sizes] = (
                tuple(costs.of_params(degrees)),
                tuple(costs.of_grads(degrees)),
                tuple(costs.of_secondaries(degrees)),
            )
        params, grads, secondaries = self._known[sizes]
        return (
            tuple(replace(each, forward=_times(each.forward, times)) for each in params),
            tuple(replace(each, reduced=_times(each.reduced, times)) for each in grads),
            tuple(replace(each, backward=_times(each.backward, times)) for each in secondaries),
        )


def _times(sent: Sent, times: int) -> Sent:
    return Sent(sent.duration_ns * times, sent.bare_ns * times, sent.longest_ns * times)


def _nested(degrees: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields every (a, b) with a | b."""
    yield from ((a, b) for a in degrees for b in degrees if b % a == 0)


def _pairs(degrees: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Returns every (p, g, o) that nests, or none where each degree divides the next: all that divide o nest then."""
    if all(larger % smaller == 0 for smaller, larger in pairwise(degrees)):
        return ()
    every = ((p, g, o) for p in degrees for g in degrees for o in degrees)
    return tuple((p, g, o) for p, g, o in every if nests(p, g, o, degrees[-1]))


class _Costs:
    """The costs of a block by the degrees that decide them, in a step of one micro-batch."""

    def __init__(self, sizes: _Sizes, machine: Machine, shape: StepShape, lossy: LossyChoice) -> None:
        self._known, self._machine, self._shape = sizes, machine, shape
        self._sizes, self._lossy = sizes.sizes, lossy
        self._widths = state_widths(shape.precision, shape.optimizer)
        self._as_int8: dict[int, bool] = {}

    def of_params(self, degrees: Sequence[int]) -> Iterator[ParamCost]:
        """Yields every (p, o), in ascending order."""
        forward = {p: self._sent([self._gather(p)] * self._known.is_run) for p in degrees}
        optimizer_ns = {o: self._optimizer_ns(o) for o in degrees}
        for p, o in _nested(degrees):
            strategy = Strategy(p, p, o, o)
            states = self._states(strategy)
            yield ParamCost(
                *(p, o),
                forward=forward[p],
                spread=self._sent([self._block(p, p, p, o).update()]),
                optimizer_ns=optimizer_ns[o],
                rest_bytes=states.parameters + states.optimizer_states,
                apart=self._apart(strategy, "input", "filling", "spread_shard", "spread_whole"),
                quantized=self._quantizes_weights(p),
            )

    def of_grads(self, degrees: Sequence[int]) -> Iterator[GradCost]:
        """Yields every (g, o), in ascending order, once for all p that pad alike."""
        alike: dict[int, list[tuple[int, ...]]] = {}
        for o in degrees:
            by_slice: dict[tuple[int, int], list[int]] = {}
            for p in degrees:
                if o % p == 0:
                    by_slice.setdefault(self._slice(p, o), []).append(p)
            alike[o] = [tuple(each) for each in by_slice.values()]
        reduced: dict[tuple[int, int, int], tuple[Sent, bool]] = {}
        for g, o in _nested(degrees):
            for params in alike[o]:
                p = params[0]
                elements, row_bytes = self._slice(p, o)
                key = (g, o * elements, o * row_bytes)
                if key not in reduced:
                    quantized = self._lossy.gradients(self._block(p, p, g, o))
                    strategy = Strategy(p, p, g, o, quantized_gradients=quantized)
                    reduced[key] = self._sent(self._gradients(strategy)), quantized
                sent, quantized = reduced[key]
                strategy = Strategy(p, p, g, o, quantized_gradients=quantized)
                left_out_bytes = residual_bytes(self._sizes, strategy, self._shape)
                yield GradCost(
                    *(g, o, params),
                    reduced=sent,
                    boundary=self._sent(self._block(p, p, g, o).boundary()),
                    rest_bytes=self._states(strategy).gradients + left_out_bytes,
                    update_bytes=slice_bytes(self._sizes, strategy, self._shape),
                    apart=self._apart(strategy, *(("copy",) if self._shape.device == "cpu" else ())),
                    quantized=quantized,
                )

    def of_secondaries(self, degrees: Sequence[int]) -> Iterator[SecondaryCost]:
        """Yields every (p, s), in ascending order."""
        gathers: dict[tuple[int, ...], Sent] = {}
        for s, p in _nested(degrees):
            strategy = Strategy(p, s, p, p, quantized_weights=self._quantizes_weights(p))
            # As int8 the padding of each parameter's shard counts, too.
            key = (s, self._sizes.gathered_elements(p), *((p,) if strategy.quantized_weights else ()))
            if key not in gathers:
                gathers[key] = self._sent(self._of(strategy).gathers_again())
            apart = self._apart(strategy, "anew", "kept", "partial")
            yield SecondaryCost(p, s, manner_of(strategy).gathered, gathers[key], apart)

    def _apart(self, strategy: Strategy, *kinds: Kind) -> Apart:
        """Returns what a strategy holds of some kinds beyond what all of its manner do."""
        manner, found = manner_of(strategy), []
        for kind in kinds:
            num_bytes = held_bytes(kind, self._sizes, strategy, self._widths)
            num_bytes -= least_held_bytes(kind, self._sizes, manner, self._widths)
            if num_bytes:
                found.append((kind, num_bytes))
        return tuple(found)

    def _slice(self, p: int, o: int) -> tuple[int, int]:
        """Returns the elements of a slice, and its bytes as int4."""
        return self._sizes.slice_elements(p, o), slice_run_bytes(self._sizes.parameters, p, o, 4)

    def _quantizes_weights(self, p: int) -> bool:
        if p not in self._as_int8:
            self._as_int8[p] = self._lossy.weights(self._block(p, p, p, p))
        return self._as_int8[p]

    def _gather(self, p: int) -> Message:
        return self._of(Strategy(p, p, p, p, quantized_weights=self._quantizes_weights(p))).forward()

    def _gradients(self, strategy: Strategy) -> list[Message]:
        return list(self._of(strategy).reductions())

    def _of(self, strategy: Strategy) -> BlockTraffic:
        return BlockTraffic(strategy, *self._known, self._shape, self._widths)

    def _states(self, strategy: Strategy) -> StateBytes:
        return block_state_bytes(self._sizes, strategy, self._widths)

    def _block(self, p: int, s: int, g: int, o: int) -> BlockTraffic:
        return self._of(Strategy(p, s, g, o))

    def _sent(self, messages: Iterable[Message]) -> Sent:
        sent = sum_messages(
            tuple(each for each in messages if is_sent(each)), self._machine.network, self._machine.speed
        )
        duration_ns = sum(sent.duration.values())
        longest_ns = max((part_ns for bare in sent.bare.values() for part_ns, _ in bare), default=0)
        return Sent(duration_ns, duration_ns - sum(sent.overlappable.values()), longest_ns)

    def _optimizer_ns(self, optim_degree: int) -> int:
        bytes_per_s = self._machine.speed.memory_bytes_per_s
        return UPDATE_NS(update_width(self._widths), self._sizes.num_trainable, optim_degree, bytes_per_s)
