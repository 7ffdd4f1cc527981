"""The ways to trace a step, and which is taken when one fails.

    fake      the module runs on fake tensors under a recorder: exact
    make_fx   the same run as one joint graph: no module calls, memory by last use
    static    nothing runs: a walk over the modules

`auto` takes them in this order, and goes on to the next where the failure is of the way and not of the model. A
mistake in the model (a batch of wrong keys, no loss, a device of its own) fails in every way and stays an error.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from planner.trace.failure.failure_text import reason_and_place
from planner.trace.fake.fake_model import FakeModel
from planner.trace.fake.forward_only import forward_only
from planner.trace.fake.left_as_it_was import seed
from planner.trace.measure.amounts import MismatchError
from planner.trace.record.record_step import StepError, record_step
from planner.trace.record.recording import Recording
from planner.trace.trace_step import TracedStep, trace_step
from planner.trace.ways import record_joint, static_walk

Way = Literal["auto", "fake", "make_fx", "static"]

_OF_THE_WAY = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
_TEXTS_OF_THE_WAY = (
    "fake impl",
    "Meta tensors",
    "Please convert all Tensors to FakeTensors",
    "Mixing fake modes",
    "does not belong to this Graph",
    "trying to get value out of a tracing tensor",
    "BatchedTensorImpl",
    "TensorWrapper",
    "functorch",
)
"""What torch 2.13 says when an operator has no rule for shapes, or when its modes and transforms do not go together."""


@dataclass(frozen=True, slots=True)
class TracedByWay:
    """A traced step, with the models that it ran, and which way it was."""

    small: FakeModel
    large: FakeModel
    step: TracedStep
    traced_by: str
    lost: tuple[str, ...]


def trace_by_way(
    way: Way,
    make: Callable[[int], FakeModel],
    device: Literal["cuda", "cpu"],
    autocast: Literal["bf16", "fp16"] | None,
    micro_batch_size: int,
) -> TracedByWay:
    """Returns the step as the given way finds it, or `auto`: the first that can.

    Args:
        way: Of the ways above.
        make: Builds the model with so many samples.
        device: Whose kernels to follow.
        autocast: The type of the products where the step runs under `torch.autocast`.
        micro_batch_size: Samples of the smaller model.

    Raises:
        StepError: The model raised, or gave no loss; of several ways the error of the first.
        MismatchError: It runs other operators for another micro-batch.
    """
    first: Exception | None = None
    for name in _ORDER if way == "auto" else (way,):
        small, large = make(micro_batch_size), make(micro_batch_size + 1)
        try:
            step = trace_step(
                small,
                large,
                _recorder(name, device, autocast),
                micro_batch_size,
                further=functools.partial(make, micro_batch_size + 2),
            )
        except Exception as error:
            first = first or error
            if way != "auto" or not _is_of_the_way(error):
                raise first from first.__cause__
            continue
        return TracedByWay(small, large, step, name, _lost(name, first))
    assert first is not None
    raise first from first.__cause__


_ORDER = ("fake", "make_fx", "static")


def _recorder(
    name: str, device: Literal["cuda", "cpu"], autocast: Literal["bf16", "fp16"] | None
) -> Callable[[FakeModel], Recording]:
    if name == "static":
        return functools.partial(static_walk.record_static, autocast=autocast)
    run = record_joint.record_joint if name == "make_fx" else record_step
    num_runs = itertools.count()

    def record(model: FakeModel) -> Recording:
        seed(next(num_runs))
        with forward_only(model.module), _eager():
            return run(model, device, autocast)

    return record


@contextmanager
def _eager() -> Iterator[None]:
    """Inside, what `torch.compile` wrapped runs as it is: compiled code cannot be watched."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _lost(name: str, failure: Exception | None) -> tuple[str, ...]:
    lost = {"fake": (), "make_fx": record_joint.LOST, "static": static_walk.LOST}[name]
    if failure is None:
        return lost
    if isinstance(failure, MismatchError):
        why = "the model runs other operators for a micro-batch of another size"
    else:
        why = reason_and_place(failure.__cause__ or failure)
    return (f"The run on fake tensors failed: {why}.", *lost)


def _is_of_the_way(error: Exception) -> bool:
    """Whether another way may come through where this one did not.

    What the model raises arrives as a `StepError`; anything else is the way's own, such as a graph that does not hold.
    """
    if not isinstance(error, StepError):
        return True
    cause = error.__cause__
    return isinstance(cause, _OF_THE_WAY) or any(text in str(cause) for text in _TEXTS_OF_THE_WAY)
