"""Runs one training step of a fake model, forward, loss and backward, and records it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from planner.trace.fake.fake_model import FakeModel
from planner.trace.fake.fake_world import fake_world
from planner.trace.kernels.autocast import autocast_region, autocast_rules
from planner.trace.kernels.cpu_kernels import cpu_kernels
from planner.trace.kernels.cuda_kernels import cuda_kernels
from planner.trace.operators import operator_warnings, registered_operators
from planner.trace.record.recorder import Recorder
from planner.trace.record.recording import Recording
from runtime.load_model import loss_of


class StepError(Exception):
    """The model's own code raised in the step; the cause is chained."""

    def __init__(self, module: str, phase: str, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.module = module
        self.phase = phase


def record_step(
    model: FakeModel, device: Literal["cuda", "cpu"], autocast: Literal["bf16", "fp16"] | None = None
) -> Recording:
    """Returns the recording of one step with the kernels that `device` would choose.

    Args:
        model: The model; of fp32 weights where `autocast` is given.
        device: Whose kernels, and whose rules of autocast, to follow.
        autocast: The type of the products where forward and loss run under `torch.autocast`.

    Raises:
        StepError: The model raised, or gave no loss.
    """
    recorder = Recorder(model.names)
    for name, parameter in model.parameters.items():
        recorder.hold("parameter", name, parameter)
    for name, buffer in model.buffers.items():
        recorder.hold("buffer", name, buffer)
    for position, leaf in enumerate(tree_leaves(model.batch)):
        if isinstance(leaf, torch.Tensor):
            recorder.hold("input", str(position), leaf)
    kernels = cuda_kernels() if device == "cuda" else cpu_kernels()
    with (
        registered_operators(device) as missing,
        fake_world(model.fake_mode, model.shadow),
        autocast_rules(device),
        kernels as notes,
        _without_collector(),
        _buffers_as_before(model.module),
        recorder.recording(),
    ):
        phase = "forward"
        try:
            with autocast_region(autocast):
                loss = loss_of(model.module(**model.batch))
            phase = "backward"
            recorder.expect_backward()
            loss.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            raise StepError(recorder.module_of(error), phase, error) from error
    gradients = [p.grad for p in model.module.parameters() if p.grad is not None]
    recording = recorder.finish(loss, gradients)
    model.module.zero_grad()
    warnings = (*recording.warnings, *operator_warnings(recording.graph), *missing, *notes)
    return replace(recording, warnings=warnings)


@contextmanager
def _buffers_as_before(module: nn.Module) -> Iterator[None]:
    """What a forward puts in the place of a buffer is gone for the next recording: each is of a first step."""
    before = [(child, dict(child._buffers)) for child in module.modules()]
    try:
        yield
    finally:
        for child, buffers in before:
            child._buffers.clear()
            child._buffers.update(buffers)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without it, memory is freed when its last reference goes: at the same operator in every run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
