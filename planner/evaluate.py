"""Predicts one assignment exactly: its time by cause, its memory by component, its traffic by kind of message."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

from costmodels.compute import NS_PER_S, ComputeTime, compute_time, mfu
from costmodels.engine import Assignment, Engine
from costmodels.memory import step_memory
from costmodels.step import step_time
from costmodels.strategy import StepShape
from costmodels.workload import Workload
from planner.machine import Machine
from planner.plan import ComputedTime, ExposedTime, MemoryComponents, Predicted, PredictedMemory, PredictedTraffic


def evaluate(
    workload: Workload,
    engine: Engine,
    machine: Machine,
    assignment: Assignment,
    shape: StepShape,
    budget_bytes: int,
    sequence_length: int | None,
) -> Predicted:
    """Returns what the engine will do in one optimizer step, on the fullest rank.

    Args:
        workload: The traced step.
        engine: Whose traffic and memory.
        machine: Links and devices.
        assignment: One strategy per class of blocks.
        shape: Micro-batches, precision, optimizer.
        budget_bytes: Device memory that a step may use; only reported.
        sequence_length: Tokens per sample; None counts samples.
    """
    time = step_time(
        workload, engine.traffic(workload, assignment, shape), assignment, shape, machine.network, machine.speed
    )
    once = tuple(replace(strategy, recompute="none") for strategy in assignment)
    num_samples = shape.micro_batch_size * shape.num_micro_batches * shape.world_size
    return Predicted(
        step_s=time.step_s,
        compute_s=time.compute_s,
        exposed_communication_s=time.exposed_communication_s,
        tokens_per_s=num_samples * (sequence_length or 1) / time.step_s,
        mfu=mfu(workload, shape, time.step_s, machine.peak_flop_per_s),
        memory=_memory(workload, engine, assignment, shape, budget_bytes),
        traffic=tuple(
            PredictedTraffic(
                operation=kind.operation,
                degree_from=kind.degree_from,
                degree_to=kind.degree_to,
                bytes=kind.total_bytes,
                count=kind.count,
                seconds=kind.seconds,
                exposed_s=kind.exposed_s,
                known=kind.provenance,
            )
            for kind in time.kinds
        ),
        exposed=ExposedTime(
            **{
                field.name.removesuffix("_ns") + "_s": getattr(time.exposed, field.name) / NS_PER_S
                for field in fields(time.exposed)
            }
        ),
        compute=_computed(time.compute, compute_time(workload, once, shape, machine.speed)),
    )


def _computed(compute: ComputeTime, once: ComputeTime) -> ComputedTime:
    """Returns the parts of compute; `once` is what it would be if nothing were computed a second time."""
    return ComputedTime(
        forward_s=compute.forward_ns / NS_PER_S,
        backward_s=once.backward_ns / NS_PER_S,
        recomputation_s=(compute.backward_ns - once.backward_ns) / NS_PER_S,
        update_s=compute.update_ns / NS_PER_S,
    )


def _memory(
    workload: Workload, engine: Engine, assignment: Assignment, shape: StepShape, budget_bytes: int
) -> PredictedMemory:
    """Without what the device reserves: the budget has that taken off, and an allocator does not report it."""
    held = engine.memory(workload, assignment, shape)
    memory = step_memory(workload, held, assignment, shape, 0)
    return PredictedMemory(
        peak_bytes=memory.peak_bytes,
        at_rest_bytes=memory.at_rest_bytes,
        init_peak_bytes=memory.init_peak_bytes,
        budget_bytes=budget_bytes,
        peak_phase=memory.peak_phase,
        components=MemoryComponents(**asdict(memory.components)),
        host_bytes=held.host_bytes,
    )
