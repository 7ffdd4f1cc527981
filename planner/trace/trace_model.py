"""The stage: a model's source in, its graph out."""

from __future__ import annotations

from typing import Literal

from costmodels.strategy import Precision
from costmodels.workload import Segment, Workload
from planner.errors import TraceError
from planner.model_graph import ModelGraph, ModelSource
from planner.trace.amounts import MismatchError, affine, join, join_by_samples
from planner.trace.explain_failure import explained
from planner.trace.fake_model import FakeModel, fake_model
from planner.trace.find_blocks import find_blocks
from planner.trace.layout import BlockLayout
from planner.trace.record_step import StepError, record_step
from planner.trace.recording import Recording
from planner.trace.segments import MeasuredSegment, measure_segments
from planner.trace.time_limit import time_limit
from planner.trace.truncate import is_shorter, truncated
from runtime.load_model import known_sequence_length
from runtime.without_noise import without_noise

MICRO_BATCH_SIZE = 2
"""Samples of the first trace; the second has one more. One sample would take short cuts of its own: an axis of length 1
is contiguous in any order and broadcasts for nothing, and normalization over a batch refuses it."""

TIME_LIMIT_S = 120.0


def trace(
    source: ModelSource,
    *,
    precision: Precision,
    device: Literal["cuda", "cpu"],
    sequence_length: int | None = None,
    time_limit_s: float = TIME_LIMIT_S,
) -> ModelGraph:
    """Returns what one training step of the model does, found by running it on tensors without memory.

    Args:
        source: The model.
        precision: Type of the weights and of the activations.
        device: Whose kernels to follow in what they save for backward.
        sequence_length: Tokens per sample; None leaves the model's default.
        time_limit_s: Seconds after which a model that does not come to an end is given up.

    Raises:
        InputError: The source or its arguments are wrong.
        TraceError: The model cannot be built or run; the text names the module and what to try.
    """
    with explained(source, time_limit_s), time_limit(time_limit_s), without_noise():
        return _Tracer(source, precision, device, sequence_length).graph()


class _Tracer:
    def __init__(
        self,
        source: ModelSource,
        precision: Precision,
        device: Literal["cuda", "cpu"],
        sequence_length: int | None,
    ) -> None:
        self._source, self._precision = source, precision
        self._device, self._sequence_length = device, sequence_length

    def graph(self) -> ModelGraph:
        model = self._model(MICRO_BATCH_SIZE)
        if not model.facts.parameters:
            raise TraceError(f"{self._source.spec}: the model has no parameters, so there is nothing to train or shard")
        recording = record_step(model, self._device)
        layout = find_blocks(model.facts, recording)
        larger = self._model(MICRO_BATCH_SIZE + 1)
        if model.input_bytes == larger.input_bytes:
            raise TraceError(
                f"{self._source.spec}: the batch is {model.input_bytes} bytes for {MICRO_BATCH_SIZE} samples and for "
                f"{MICRO_BATCH_SIZE + 1}. Give its tensors micro_batch_size samples along their first axis."
            )
        workload = Workload(
            parameters=model.facts.parameters,
            blocks=layout.blocks,
            segments=self._segments(model, recording, larger, layout),
            input_bytes=affine(model.input_bytes, larger.input_bytes, MICRO_BATCH_SIZE),
            buffer_bytes=model.facts.buffer_bytes,
            composites=self._composites(model),
            linears=self._linears(model, recording),
        )
        return ModelGraph(
            name=model.facts.type_name,
            source=self._source,
            precision=self._precision,
            device=self._device,
            sequence_length=self._known_sequence_length(),
            traced_by="fake",
            warnings=(*recording.warnings, *model.shadow.assumed),
            workload=workload,
        )

    def _model(self, micro_batch_size: int) -> FakeModel:
        return fake_model(self._source, micro_batch_size, self._precision, self._sequence_length, self._device)

    @staticmethod
    def _composites(model: FakeModel) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, list[str]] = {}
        for name, module in model.facts.modules.items():
            if module.children:
                found.setdefault(module.class_name, []).append(name)
        return tuple((class_name, tuple(names)) for class_name, names in found.items())

    @staticmethod
    def _linears(model: FakeModel, recording: Recording) -> tuple[tuple[int, int], ...]:
        index_of = {parameter.name: index for index, parameter in enumerate(model.facts.parameters)}
        return tuple((index_of[weight], index_of[bias]) for weight, bias in recording.linears)

    def _segments(
        self, model: FakeModel, recording: Recording, larger: FakeModel, layout: BlockLayout
    ) -> tuple[Segment, ...]:
        """Layers that are equal grow equally with the micro-batch, so a few of them show how; where not, all run."""
        full = measure_segments(model.facts, layout, recording)
        if is_shorter(layout):
            try:
                small, large = (self._short(one, layout) for one in (model, larger))
                return join_by_samples(full, small, large, layout, MICRO_BATCH_SIZE)
            except (MismatchError, StepError):
                pass  # The full second trace below needs no such luck.
        again = measure_segments(larger.facts, layout, record_step(larger, self._device))
        return join(full, again, MICRO_BATCH_SIZE)

    def _short(self, model: FakeModel, layout: BlockLayout) -> list[MeasuredSegment]:
        with truncated(model.module, layout):
            return measure_segments(model.facts, layout, record_step(model, self._device))

    def _known_sequence_length(self) -> int | None:
        source = self._source
        return known_sequence_length(source.spec, source.kind, source.arguments, self._sequence_length)
