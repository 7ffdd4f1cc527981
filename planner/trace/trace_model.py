"""The stage: a model's source in, its graph out."""

from __future__ import annotations

from typing import Literal

from torch import nn

from costmodels.check_workload import problem_of
from costmodels.strategy import Precision
from costmodels.workload import Workload
from planner.errors import InputError, TraceError
from planner.model_graph import ModelGraph, ModelSource
from planner.trace.blocks.find_experts import find_experts, with_axes
from planner.trace.failure.explain_failure import explained
from planner.trace.failure.notices import notices
from planner.trace.failure.time_limit import time_limit
from planner.trace.fake.fake_model import FakeModel, fake_model
from planner.trace.fake.left_as_it_was import left_as_it_was
from planner.trace.measure.amounts import affine
from planner.trace.measure.largest_activation import largest_activation
from planner.trace.ways.fallback import Way, trace_by_way
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
    autocast: Literal["bf16", "fp16"] | None = None,
    sequence_length: int | None = None,
    way: Way = "auto",
    time_limit_s: float = TIME_LIMIT_S,
) -> ModelGraph:
    """Returns what one training step of the model does, found by running it on tensors without memory.

    Args:
        source: The model.
        precision: Type of the weights and of the activations.
        device: Whose kernels to follow in what they save for backward.
        autocast: The type of the products where fp32 weights run under `torch.autocast`.
        sequence_length: Tokens per sample; None leaves the model's default.
        way: How to trace it; `auto` takes the first way that comes through.
        time_limit_s: Seconds after which a model that does not come to an end is given up.

    Raises:
        InputError: The source or its arguments are wrong, or autocast is asked for over weights that are not fp32.
        TraceError: The model cannot be built or run; the text names the module and what to try.
    """
    if autocast is not None and precision != "fp32":
        raise InputError(
            f"autocast runs weights of fp32 in {autocast}, and the weights are {precision}: give one of both"
        )
    with explained(source, time_limit_s), time_limit(time_limit_s), left_as_it_was(), without_noise():
        return _Tracer(source, precision, device, autocast, sequence_length, way).graph()


class _Tracer:
    def __init__(
        self,
        source: ModelSource,
        precision: Precision,
        device: Literal["cuda", "cpu"],
        autocast: Literal["bf16", "fp16"] | None,
        sequence_length: int | None,
        way: Way,
    ) -> None:
        self._source, self._precision, self._autocast = source, precision, autocast
        self._device, self._sequence_length, self._way = device, sequence_length, way
        self._made: list[nn.Module] = []

    def graph(self) -> ModelGraph:
        traced = trace_by_way(self._way, self._model, self._device, self._autocast, MICRO_BATCH_SIZE)
        model, larger, step = traced.small, traced.large, traced.step
        if model.input_bytes == larger.input_bytes:
            raise TraceError(
                f"{self._source.spec}: the batch is {model.input_bytes} bytes for {MICRO_BATCH_SIZE} samples and for "
                f"{MICRO_BATCH_SIZE + 1}. Give its tensors micro_batch_size samples along their first axis."
            )
        experts = find_experts(model.facts, step.recording, knows_calls=traced.traced_by == "fake")
        workload = Workload(
            parameters=with_axes(model.facts.parameters, experts),
            blocks=step.layout.blocks,
            segments=step.segments,
            input_bytes=affine(model.input_bytes, larger.input_bytes, MICRO_BATCH_SIZE),
            buffer_bytes=model.facts.buffer_bytes,
            composites=self._composites(model),
            linears=step.linears,
            saved_views=step.saved_views,
            leaf_modules=experts.leaf_modules,
        )
        problem = problem_of(workload)
        if problem is not None:
            raise TraceError(
                f"{self._source.spec}: what was traced at {MICRO_BATCH_SIZE} samples and at {MICRO_BATCH_SIZE + 1} "
                f"does not go together: {problem}. Make all samples of the batch alike: of one length, and of one kind."
            )
        return ModelGraph(
            name=model.facts.type_name,
            source=self._source,
            precision=self._precision,
            device=self._device,
            sequence_length=self._known_sequence_length(),
            autocast=self._autocast,
            traced_by=traced.traced_by,
            lost=traced.lost,
            warnings=(
                *step.recording.warnings,
                *model.shadow.assumed,
                *step.notes,
                *experts.notes,
                *notices(self._source, model, self._sequence_length),
            ),
            largest_activation=largest_activation(step.recording, MICRO_BATCH_SIZE),
            workload=workload,
        )

    def _model(self, micro_batch_size: int) -> FakeModel:
        model = fake_model(self._source, micro_batch_size, self._precision, self._sequence_length, self._device)
        if not model.facts.parameters:
            raise TraceError(f"{self._source.spec}: the model has no parameters, so there is nothing to train or shard")
        if not any(parameter.num_elements for parameter in model.facts.parameters):
            raise TraceError(
                f"{self._source.spec}: no parameter has an element, so there is nothing to train or shard: build the "
                "model whole, outside of what partitions or empties it"
            )
        if any(model.module is earlier for earlier in self._made):
            raise TraceError(
                f"{self._source.spec}: it returned the same module twice, and a trace needs a new one for each size of "
                "the batch: build the model in the callable, not while the file is loaded"
            )
        self._made.append(model.module)
        return model

    @staticmethod
    def _composites(model: FakeModel) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, list[str]] = {}
        for name, module in model.facts.modules.items():
            if module.children:
                found.setdefault(module.class_name, []).append(name)
        return tuple((class_name, tuple(names)) for class_name, names in found.items())

    def _known_sequence_length(self) -> int | None:
        source = self._source
        return known_sequence_length(source.spec, source.kind, source.arguments, self._sequence_length)
