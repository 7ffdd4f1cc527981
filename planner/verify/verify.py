"""The stage: a model's source in, its trace beside a real step out."""

from __future__ import annotations

import time
from typing import Literal

from costmodels.strategy import Precision
from planner.errors import RunError
from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace
from planner.trace.fake.fake_model import fake_model
from planner.trace.record.record_step import record_step
from planner.verify.real_step import RealModel, RealStep, real_model, real_step
from planner.verify.replay import replay
from planner.verify.room import check_room
from planner.verify.verification import Comparison, Verification
from planner.verify.walk import Walked, walk

EXACT = 0.0
BYTES_TOLERANCE = 1e-3
AUTOCAST_BYTES_TOLERANCE = 0.02
LOSS_TOLERANCE, AUTOCAST_LOSS_TOLERANCE = 1e-5, 1e-2
"""Kernels that sum in another order give other last digits."""


def verify(
    source: ModelSource,
    *,
    precision: Precision,
    autocast: Literal["bf16", "fp16"] | None = None,
    sequence_length: int | None = None,
    micro_batch_size: int = 2,
    recompute: bool = False,
    graph: ModelGraph | None = None,
) -> Verification:
    """Returns the traced step beside one that really ran on this CPU, and the emitted graph's loss beside the model's.

    Args:
        source: The model; small enough to run here.
        precision: Type of the weights.
        autocast: Type of the products where fp32 weights run under `torch.autocast`.
        sequence_length: Tokens per sample; None leaves the model's default.
        micro_batch_size: Samples of the real step.
        recompute: Whether every block that can be is recomputed in backward.
        graph: What `trace` gave for the same source and arguments on "cpu"; None traces it here.

    Raises:
        InputError: The source is wrong, or the real step does not fit into this machine's memory.
        TraceError: The model cannot be traced.
        RunError: The model itself does not run on this CPU.
    """
    started = time.perf_counter()
    if graph is None:
        graph = trace(source, precision=precision, device="cpu", autocast=autocast, sequence_length=sequence_length)
    trace_s = time.perf_counter() - started
    check_room(graph, micro_batch_size)
    model = real_model(source, micro_batch_size, precision, sequence_length)
    blocks = [block.name for block in graph.workload.blocks if block.recomputable] if recompute else []
    try:
        real = real_step(model, autocast, blocks)
    except Exception as error:
        raise RunError(
            f"{source.spec}: the model itself does not run on this CPU: {type(error).__name__}: {error}"
        ) from error
    loss, notes = _replayed(source, graph, model, micro_batch_size)
    walked = walk(graph.workload, micro_batch_size, recompute=recompute)
    num_params = sum(parameter.numel() for parameter in model.module.parameters())
    return Verification(
        name=graph.name,
        precision=precision,
        autocast=autocast,
        recompute=recompute,
        micro_batch_size=micro_batch_size,
        sequence_length=graph.sequence_length,
        traced_by=graph.traced_by,
        loss_eager=real.loss,
        loss_replayed=loss,
        loss_tolerance=LOSS_TOLERANCE if autocast is None and precision == "fp32" else AUTOCAST_LOSS_TOLERANCE,
        comparisons=_comparisons(walked, real, graph.workload.num_params, num_params, is_mixed=autocast is not None),
        trace_s=trace_s,
        real_s=real.seconds,
        warnings=graph.warnings,
        notes=(*notes, *_NOTES),
    )


_NOTES = (
    "both steps run without oneDNN, whose kernels take scratch memory that no operator shows",
    "the allocator counts what operators take inside, and 5,056 bytes of random state per recomputed block",
)


def _replayed(
    source: ModelSource, graph: ModelGraph, model: RealModel, micro_batch_size: int
) -> tuple[float | None, list[str]]:
    try:
        fake = fake_model(source, micro_batch_size, graph.precision, graph.sequence_length)
        return replay(record_step(fake, "cpu", graph.autocast), model), []
    except Exception as error:  # whatever the kernels say to operands that the trace guessed
        reason = str(error).partition("\n")[0]
        return None, [f"the graph does not run with the real weights: {type(error).__name__}: {reason}"]


def _comparisons(
    walked: Walked, real: RealStep, traced_params: int, real_params: int, *, is_mixed: bool
) -> tuple[Comparison, ...]:
    tolerance = AUTOCAST_BYTES_TOLERANCE if is_mixed else BYTES_TOLERANCE
    figures = (
        ("num_params", traced_params, real_params, EXACT, True),
        ("forward_flop", walked.forward_flop, real.forward_flop, EXACT, True),
        # What a model recomputes itself is backward's in the trace, so that only the sum is promised.
        (
            "backward_flop",
            walked.backward_flop + walked.recomputation_flop,
            real.backward_flop + real.recomputation_flop,
            EXACT,
            True,
        ),
        ("recomputation_flop", walked.recomputation_flop, real.recomputation_flop, EXACT, False),
        ("saved_bytes", walked.saved_bytes, real.saved_bytes, tolerance, True),
        ("peak_bytes", walked.peak_bytes, real.peak_bytes, tolerance, True),
        ("allocator_saved_bytes", walked.saved_bytes, real.allocator_saved_bytes, tolerance, False),
        ("allocator_peak_bytes", walked.peak_bytes, real.allocator_peak_bytes, tolerance, False),
    )
    return tuple(
        Comparison(name=name, traced=traced, real=measured, tolerance=allowed, is_promised=is_promised)
        for name, traced, measured, allowed, is_promised in figures
    )
