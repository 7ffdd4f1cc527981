"""Runs one training step of the model on real tensors, on this CPU, and measures it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from costmodels.strategy import Precision
from planner.model_graph import ModelSource
from planner.trace.fake.layer_drop import switch_off_layer_drop
from planner.trace.kernels.cpu_kernels import fused_lstm
from planner.verify.allocator import allocations
from planner.verify.tensors_alive import TensorsAlive
from runtime.load_model import build, cast_floats, loss_of
from runtime.recompute import recompute

DTYPES: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SEED = 0


@dataclass(frozen=True, slots=True)
class RealModel:
    """The model with seeded weights, its batch, and copies of both as they were before anything ran."""

    module: nn.Module
    batch: dict[str, Any]
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class RealStep:
    """What a step saved and held at most, without parameters, buffers and inputs, and what it computed."""

    loss: float
    saved_bytes: int
    peak_bytes: int
    allocator_saved_bytes: int
    allocator_peak_bytes: int
    forward_flop: int
    backward_flop: int
    recomputation_flop: int
    seconds: float


def real_model(
    source: ModelSource, micro_batch_size: int, precision: Precision, sequence_length: int | None
) -> RealModel:
    """Returns the model, built twice the same way by the same seed in any process."""
    torch.manual_seed(SEED)
    module, batch = build(source.spec, source.kind, source.arguments, micro_batch_size, sequence_length)
    switch_off_layer_drop(module)  # as in the trace, which is of the step in which every layer runs
    module.to(DTYPES[precision]).train()
    batch = cast_floats(batch, DTYPES[precision])
    return RealModel(
        module=module,
        batch=batch,
        parameters={name: parameter.detach().clone() for name, parameter in module.named_parameters()},
        buffers={name: buffer.detach().clone() for name, buffer in module.named_buffers()},
        inputs=tuple(leaf.clone() for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)),
    )


def real_step(model: RealModel, autocast: Literal["bf16", "fp16"] | None, recomputed: Sequence[str]) -> RealStep:
    """Returns the measures of a step in which the modules of these names are recomputed.

    It runs twice: first under the dispatcher, with what happens in a first call only, then under the allocator's
    profiler. Both run without oneDNN, as the trace does.
    """
    module, batch = model.module, model.batch
    recompute(module, recomputed)
    leaves = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    started = time.perf_counter()
    alive = TensorsAlive([*module.parameters(), *module.buffers(), *leaves])
    with as_traced(autocast) as precision, alive:
        with precision:
            loss = loss_of(module(**batch))
        saved_bytes = alive.live_bytes
        loss.backward()  # type: ignore[no-untyped-call]
    seconds = time.perf_counter() - started
    module.zero_grad()
    batch = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
    with as_traced(autocast) as precision, allocations() as allocated:
        with precision:
            again = loss_of(module(**batch))
        allocated.mark()
        again.backward()  # type: ignore[no-untyped-call]
    module.zero_grad()
    return RealStep(
        loss=loss.item(),
        saved_bytes=saved_bytes,
        peak_bytes=alive.peak_bytes,
        allocator_saved_bytes=allocated.saved_bytes,
        allocator_peak_bytes=allocated.peak_bytes,
        forward_flop=alive.flop["forward"],
        backward_flop=alive.flop["backward"],
        recomputation_flop=alive.flop["recomputation"],
        seconds=seconds,
    )


@contextmanager
def as_traced(autocast: Literal["bf16", "fp16"] | None) -> Iterator[Any]:
    """Inside, kernels are those of the trace on "cpu", random numbers begin anew, and no collector runs.

    Yields the context in which forward runs.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.manual_seed(SEED)
    gc.disable()
    try:
        with fused_lstm():
            yield torch.autocast("cpu", dtype=DTYPES[autocast]) if autocast else nullcontext()
    finally:
        gc.enable()
        torch._C._set_mkldnn_enabled(before)
