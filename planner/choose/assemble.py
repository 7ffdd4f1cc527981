"""Puts a plan together from what was asked, what was chosen and what was proved."""

from __future__ import annotations

from typing import Any, Literal

from costmodels.states import state_widths
from planner.choose.candidate import Candidate, planned_strategies
from planner.choose.setting import Setting
from planner.choose.warnings import lossy, on_host
from planner.plan import (
    Alternative,
    Plan,
    PlannedHardware,
    PlannedJob,
    PlannedLevel,
    PlannedModel,
    Predicted,
    SolverReport,
)
from planner.report.figures import bytes_in, bytes_text, bytes_unit, count_text, plural
from planner.simulate.timeline import Timeline

MUCH_OF_PEAK = 5
"""An activation of at least one part in so many of the peak is worth a word."""
LITTLE_TRAINED = 10
"""Parameters so many times as large as all gradients and optimizer states leave these next to nothing to save."""


def assemble(
    asked: Setting,
    chosen: Candidate,
    solver: SolverReport,
    alternatives: tuple[Alternative, ...],
    ds_config: dict[str, Any],
    warnings: tuple[str, ...] = (),
    timeline: Timeline | None = None,
) -> Plan:
    """Returns the plan of a choice.

    Args:
        asked: Model, machine and job.
        chosen: The strategy with what was predicted for it.
        solver: How it was proved.
        alternatives: The others, with their verdicts.
        ds_config: The engine's configuration, in DeepSpeed's schema.
        warnings: What the user should know beside the trace's own warnings.
        timeline: The step played through; None: it was not.
    """
    engine: Literal["deepspeed", "fsdp"] = "deepspeed" if chosen.engine == "deepspeed" else "fsdp"
    return Plan(
        model=_model(asked, chosen),
        hardware=_hardware(asked),
        job=PlannedJob(
            global_batch_size=asked.job.global_batch_size,
            micro_batch_size=chosen.shape.micro_batch_size,
            num_micro_batches=chosen.shape.num_micro_batches,
            sequence_length=asked.graph.sequence_length,
            precision=asked.job.precision,
            optimizer=asked.job.optimizer,
        ),
        engine=engine,
        native_deepspeed=engine == "deepspeed",
        strategies=planned_strategies(chosen.workload, chosen.assignment),
        predicted=_predicted(chosen.predicted, timeline),
        solver=solver,
        alternatives=alternatives,
        ds_config=ds_config,
        warnings=(*_lost(asked), *asked.graph.warnings, *_warnings(asked, chosen), *warnings),
    )


def _predicted(predicted: Predicted, timeline: Timeline | None) -> Predicted:
    return predicted if timeline is None else predicted.model_copy(update={"simulated_step_s": timeline.step_s})


def _recomputed(chosen: Candidate) -> tuple[str, ...]:
    return tuple(
        block.name
        for block in chosen.workload.blocks
        if block.recomputable and chosen.assignment[block.block_class].recompute == "full"
    )


def _model(asked: Setting, chosen: Candidate) -> PlannedModel:
    return PlannedModel(
        name=asked.graph.name,
        num_params=asked.workload.num_params,
        num_trainable_params=asked.workload.num_trainable_params,
        source=asked.graph.source,
        recompute_modules=_recomputed(chosen),
    )


def _hardware(asked: Setting) -> PlannedHardware:
    profile = asked.profile
    return PlannedHardware(
        name=profile.name,
        device=profile.device.name,
        device_kind=profile.device.kind,
        world_size=profile.world_size,
        ranks_per_node=profile.ranks_per_node,
        levels=tuple(PlannedLevel(name=level.name, size=level.size) for level in profile.levels),
    )


def _lost(asked: Setting) -> tuple[str, ...]:
    """What a trace that fell back does not know: the plan stands on it."""
    lost = asked.graph.lost
    return (f"the model was traced by the way {asked.graph.traced_by!r}. {' '.join(lost)}",) if lost else ()


def _warnings(asked: Setting, chosen: Candidate) -> tuple[str, ...]:
    memory = chosen.predicted.memory
    unit = bytes_unit(memory.budget_bytes)
    peak, available = bytes_in(unit, memory.peak_bytes), unit.text(memory.budget_bytes)
    warnings = []
    if not chosen.fits:
        warnings.append(f"this strategy does not fit: it needs {peak} per rank, and {available} are available")
    if memory.init_peak_bytes > memory.budget_bytes:
        warnings.append(
            f"building the model and the engine needs {bytes_in(unit, memory.init_peak_bytes)} on the device, more "
            f"than the {available} available, although the steps themselves need {peak}"
        )
    if chosen.engine == "deepspeed" and (recomputed := _recomputed(chosen)):
        warnings.append(
            f"recomputation ({plural(len(recomputed), 'block')}) is done by launch.py, and ds_config.json cannot ask "
            "for it: a script of your own has to do it too, or plan with --recompute none"
        )
    warnings += _little_trained(asked)
    warnings += _large_logits(asked, chosen)
    return (*warnings, *on_host(asked, chosen), *lossy(asked, chosen))


def _little_trained(asked: Setting) -> list[str]:
    """What sharding gradients and optimizer states can save at most, where little of the model is trained."""
    workload = asked.workload
    widths = state_widths(asked.job.precision, asked.job.optimizer)
    trained_bytes = (widths.gradient + widths.optimizer) * workload.num_trainable_params
    parameters_bytes = widths.parameter * workload.num_params
    if trained_bytes * LITTLE_TRAINED > parameters_bytes:
        return []
    return [
        f"{count_text(workload.num_trainable_params)} of {count_text(workload.num_params)} parameters are trained: "
        f"sharding gradients and optimizer states saves at most {bytes_text(trained_bytes)} per rank, and the "
        f"parameters are {bytes_text(parameters_bytes)}"
    ]


def _large_logits(asked: Setting, chosen: Candidate) -> list[str]:
    """What can be had by a loss that takes the logits in pieces, where they are much of the peak."""
    largest, memory = asked.graph.largest_activation, chosen.predicted.memory
    if largest is None or not largest.are_logits:
        return []
    logits_bytes = largest.bytes_per_sample * chosen.shape.micro_batch_size
    if logits_bytes * MUCH_OF_PEAK < memory.peak_bytes:
        return []
    return [
        f"the largest activation is the logits of {largest.module or 'the model'} in {largest.dtype}: "
        f"{bytes_text(logits_bytes)} of a peak of {bytes_text(memory.peak_bytes)}; a loss that takes them in pieces "
        "does not hold them"
    ]
