"""The step of a model as segments: recorded whole or of a few layers, at two micro-batches, and with recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from costmodels.workload import Segment
from planner.trace.blocks.find_blocks import find_blocks
from planner.trace.blocks.layout import BlockLayout
from planner.trace.blocks.saved_views import saved_views
from planner.trace.blocks.signature import ancestors
from planner.trace.fake.fake_model import FakeModel
from planner.trace.measure.amounts import MismatchError, join, join_recomputed
from planner.trace.measure.coarsen import COARSE, aligned, grows_evenly
from planner.trace.measure.multiply import check_multiplied, multiply, multiply_pairs, transfer
from planner.trace.measure.outline import outline
from planner.trace.measure.pairs import Result, pairs_of_samples, results
from planner.trace.measure.recomputing import recomputing
from planner.trace.measure.segments import MeasuredSegment, measure_segments
from planner.trace.measure.settle import settle
from planner.trace.measure.truncate import Shortening, classes, shorten, truncated
from planner.trace.record.record_step import StepError
from planner.trace.record.recording import ModelFacts, Recording

MAX_OPERATORS = 10_000
"""A step of more is traced with a few layers of each kind, and multiplied: a whole one takes 2 s and more."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What a trace of the step gives for a `Workload`."""

    layout: BlockLayout
    segments: tuple[Segment, ...]
    linears: tuple[tuple[int, int], ...]
    saved_views: tuple[int, ...]
    recording: Recording
    """Of the smaller micro-batch; of a few layers where the step was multiplied."""
    notes: tuple[str, ...]


def trace_step(
    small: FakeModel,
    large: FakeModel,
    record: Callable[[FakeModel], Recording],
    micro_batch_size: int,
    max_operators: int = MAX_OPERATORS,
    further: Callable[[], FakeModel] | None = None,
) -> TracedStep:
    """Returns the step of a model with its amounts for any micro-batch.

    Layers that are equal grow equally with the micro-batch, so that a few of them show how; where not, all run. A step
    of more than `max_operators` is that of a few layers, multiplied.

    Args:
        small: The model with a batch of `micro_batch_size` samples.
        large: The model with one sample more.
        record: Runs a step and records it.
        micro_batch_size: Samples of `small`.
        max_operators: The most that run for the trace of all layers.
        further: Makes the model with two samples more than `small`, for a step that runs more operators for each
            sample; None: such a step is refused.

    Raises:
        StepError: The model raised, or gave no loss.
        MismatchError: It runs other operators for another micro-batch.
    """
    return _StepTracer(small, large, record, micro_batch_size, max_operators, further).traced()


class _StepTracer:
    def __init__(
        self,
        small: FakeModel,
        large: FakeModel,
        record: Callable[[FakeModel], Recording],
        micro_batch_size: int,
        max_operators: int,
        further: Callable[[], FakeModel] | None,
    ) -> None:
        self._small, self._large = small, large
        self._facts = small.facts
        self._record_step = record
        self._size = micro_batch_size
        self._max_operators = max_operators
        self._further, self._is_coarse = further, False
        self._notes: list[str] = []
        self._results: dict[bool, list[Result]] = {}
        """Of the last step of either size."""

    def traced(self) -> TracedStep:
        step = self._traced()
        pairs = pairs_of_samples(self._results.get(False, []), self._results.get(True, []))
        return replace(step, notes=(*step.notes, *pairs))

    def _traced(self) -> TracedStep:
        shortening = shorten(*outline(self._facts))
        if shortening.dropped:
            try:
                return self._multiplied(shortening) or self._whole()
            except (MismatchError, StepError):
                self._notes.clear()  # All layers run after all, and say what is wrong if anything is.
        return self._whole()

    def _multiplied(self, shortening: Shortening) -> TracedStep | None:
        """Returns the step of a few layers, multiplied; None where running all layers takes not much longer."""
        recording = self._record(self._small, shortening)
        if _num_operators(recording, shortening) <= self._max_operators:
            return None
        few = _without(self._facts, shortening)
        layout = find_blocks(few, recording)
        measured = measure_segments(few, layout, recording)
        self._check_multiplied(measured, layout, shortening)
        segments = join(measured, self._measured(self._large, layout, shortening), self._size)
        layout, segments = self._with_recomputation(layout, segments, shortening)
        linears = multiply_pairs(self._facts, shortening, self._linears(recording))
        views = multiply_pairs(self._facts, shortening, [(each, each) for each in saved_views(self._facts, recording)])
        layout, segments = multiply(self._facts, layout, segments, shortening)
        segments = settle(layout.blocks, segments)
        kept = sum(one.num_kept for one in shortening.lists)
        self._notes.append(
            f"{kept} layers were run; the {len(shortening.dropped)} others of the same lists are taken to be equal to "
            "them, as their classes, parameters, buffers and attributes are"
        )
        return TracedStep(layout, segments, linears, tuple(one for one, _ in views), recording, tuple(self._notes))

    def _check_multiplied(self, measured: list[MeasuredSegment], layout: BlockLayout, shortening: Shortening) -> None:
        """Raises a `MismatchError` where a few layers more are not what the shorter model says that they are."""
        longer = shortening.longer()
        recording = self._record(self._small, longer)
        facts = _without(self._facts, longer)
        longer_layout = find_blocks(facts, recording)
        measured_longer = measure_segments(facts, longer_layout, recording)
        check_multiplied(measured, layout, measured_longer, longer_layout, shortening.within(longer))

    def _whole(self) -> TracedStep:
        recording = self._record(self._small)
        layout = find_blocks(self._facts, recording)
        full = measure_segments(self._facts, layout, recording)
        try:
            layout, segments = self._by_shorter(layout, full)
        except (MismatchError, StepError):
            segments = self._joined(layout, full, self._measured(self._large, layout))
            layout, segments = self._with_recomputation(layout, segments)
        linears, views = self._linears(recording), saved_views(self._facts, recording)
        return TracedStep(layout, segments, linears, views, recording, tuple(self._notes))

    def _joined(
        self, layout: BlockLayout, small: list[MeasuredSegment], large: list[MeasuredSegment]
    ) -> tuple[Segment, ...]:
        """Returns the joined segments; a third size shows whether more operators for each sample are as many each."""
        try:
            return join(small, large, self._size)
        except MismatchError:
            if self._further is None or not grows_evenly((small, large, self._measured(self._further(), layout))):
                raise
        self._is_coarse = True
        self._notes.append(COARSE)
        return join(*aligned(small, large), self._size)

    def _by_shorter(self, layout: BlockLayout, full: list[MeasuredSegment]) -> tuple[BlockLayout, tuple[Segment, ...]]:
        shortening = shorten(layout.repetitions, classes(layout))
        if not shortening.dropped:
            raise MismatchError
        small = self._measured(self._small, layout, shortening)
        joined = join(small, self._measured(self._large, layout, shortening), self._size)
        transfer(full, small, joined, layout, shortening)
        layout, joined = self._with_recomputation(layout, joined, shortening)
        return layout, settle(layout.blocks, transfer(full, small, joined, layout, shortening))

    def _with_recomputation(
        self, layout: BlockLayout, segments: tuple[Segment, ...], shortening: Shortening | None = None
    ) -> tuple[BlockLayout, tuple[Segment, ...]]:
        """Returns layout and segments with what recomputing each block that can be recomputed changes."""
        left_out = frozenset(shortening.dropped if shortening else ())
        able = [i for i, block in enumerate(layout.blocks) if block.recomputable and block.name not in left_out]
        if not able:
            return layout, segments
        chosen = frozenset(able)
        try:
            small, large = (self._measured(model, layout, shortening, chosen) for model in (self._small, self._large))
            if self._is_coarse:
                small, large = aligned(small, large)
            joined, failed = join_recomputed(segments, small, large, chosen, self._size)
        except MismatchError:
            joined, failed = segments, tuple(able)
        except StepError as error:
            self._notes.append(f"its layers cannot be recomputed in backward: {error}")
            joined, failed = segments, tuple(able)
        unable = {layout.blocks[index].block_class for index in failed}
        fewer, without = _not_recomputable(layout, joined, unable)
        if failed and any(block.recomputable for block in fewer.blocks):
            # The others ran while those were recomputed too, which what is outside the layers shows.
            return self._with_recomputation(fewer, segments, shortening)
        return fewer, without

    def _measured(
        self,
        model: FakeModel,
        layout: BlockLayout,
        shortening: Shortening | None = None,
        recomputed: frozenset[int] = frozenset(),
    ) -> list[MeasuredSegment]:
        names = [layout.blocks[index].name for index in sorted(recomputed)]
        with recomputing(model.module, names):
            recording = self._record(model, shortening)
        return measure_segments(model.facts, layout, recording, recomputed)

    def _record(self, model: FakeModel, shortening: Shortening | None = None) -> Recording:
        shorter: AbstractContextManager[None] = nullcontext()
        if shortening is not None:
            shorter = truncated(model.module, shortening)
        with shorter:
            recording = self._record_step(model)
        self._results[model is self._large] = results(recording)
        return recording

    def _linears(self, recording: Recording) -> tuple[tuple[int, int], ...]:
        index_of = {parameter.name: index for index, parameter in enumerate(self._facts.parameters)}
        return tuple((index_of[weight], index_of[bias]) for weight, bias in recording.linears)


def _not_recomputable(
    layout: BlockLayout, segments: tuple[Segment, ...], unable: set[int]
) -> tuple[BlockLayout, tuple[Segment, ...]]:
    """Takes recomputation from all blocks of these classes: equal blocks are treated alike."""
    blocks = tuple(
        replace(block, recomputable=False) if block.block_class in unable else block for block in layout.blocks
    )
    none_left = not any(block.recomputable for block in blocks)
    kept = tuple(
        replace(segment, recomputed=None)
        if none_left or layout.blocks[segment.block].block_class in unable
        else segment
        for segment in segments
    )
    return replace(layout, blocks=blocks), kept


def _num_operators(recording: Recording, shortening: Shortening) -> int:
    """Returns how many operators a step of all layers runs, by those of the layers that ran."""
    kept = frozenset(member for one in shortening.lists for member in one.kept)
    per_layer: Counter[str] = Counter()
    total = 0
    for node in recording.graph.nodes:
        if node.op == "call_function" and "part_of" not in node.meta:
            total += 1
            per_layer.update(up for up in ancestors(node.meta["fqn"]) if up in kept)
    left_out = ((one, number) for one in shortening.lists for number in range(one.num_kept, len(one.members)))
    return total + sum(per_layer[one.members[one.counterpart(number)]] for one, number in left_out)


def _without(facts: ModelFacts, shortening: Shortening) -> ModelFacts:
    """Returns the facts of the model with the layers that remain; parameters keep their numbers."""
    dropped = frozenset(shortening.dropped)
    modules = {
        name: replace(module, children=tuple(child for child in module.children if child not in dropped))
        for name, module in facts.modules.items()
        if not any(up in dropped for up in ancestors(name))
    }
    return replace(facts, modules=modules)
