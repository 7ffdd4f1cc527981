"""Folds what a run measured into the profile of its machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from costmodels.collectives import collective_time
from hw_profiles.schema import Calibration, ComputeFactor, HardwareProfile, MessageFactor, Operation
from planner.choose.timeline_of import timeline_of
from planner.errors import InputError
from planner.machine import Machine, machine
from planner.plan import Plan
from planner.read.planned_folder import PlannedFolder
from planner.report.figures import bytes_text, seconds_text
from planner.report.names import operation_text
from planner.run.run_report import RunReport, TimedMessage

_ABSURD = 20.0
"""A figure that is off by more is of another machine, or of one that did something else."""
_KNOWN = 0.02
"""What differs by less is left as it is, as is what differs by less than its timings do among each other."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """One figure of the profile for this plan."""

    name: str
    predicted_s: float
    measured_s: float
    is_folded: bool
    """False: it differs by no more than timings do among each other, and stays as it was predicted."""

    @property
    def folded_s(self) -> float:
        """What the new profile says."""
        return self.measured_s if self.is_folded else self.predicted_s


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A profile that knows of a run, and what has changed."""

    profile: HardwareProfile
    figures: tuple[Corrected, ...]
    before_s: float
    """The step that was predicted, played through."""
    after_s: float
    """The same with the new profile."""
    measured_s: float


def calibrate(planned: PlannedFolder, report: RunReport, day: date) -> Calibrated:
    """Returns the plan's profile with what its run found.

    Compute of this model in this precision, and messages of these operations, groups and sizes, get the factor by which
    the run's figure differs from what the profile alone says. All else stays as it is.

    Args:
        planned: The plan, its model and the profile that it was made with.
        report: Of a run that timed compute and messages apart.
        day: Of the run.

    Raises:
        InputError: The run did not time them, or what it found is absurd.
    """
    if report.apart is None:
        raise InputError("this run timed neither compute nor messages apart: run the plan again with --calibrate FILE")
    profile, plan, graph = planned.profile, planned.plan, planned.graph
    on = machine(profile, plan.job.precision, graph)
    computed = _computed(plan.predicted.compute_s, report.apart.compute_s)
    sent = [(_message(each), _sent(each, on)) for each in report.apart.messages]
    found: list[_Factor] = [_compute_factor(planned, computed), *_message_factors(on, sent)]
    new = _with_factors(profile, found, _provenance(plan, day))
    before_s, after_s = (
        timeline_of(plan, graph, machine(each, plan.job.precision, graph)).step_s for each in (profile, new)
    )
    return Calibrated(new, (computed, *(each for _, each in sent)), before_s, after_s, report.measured.step_s)


def _provenance(plan: Plan, day: date) -> str:
    ranks = f"{plan.hardware.world_size} ranks of {plan.hardware.name}"
    return f"timed apart in a run of {plan.model.name} by the {plan.engine} engine on {ranks}, {day.isoformat()}"


_Factor = ComputeFactor | MessageFactor
_Message = tuple[Operation, int, int, int]
"""Operation, degrees, bytes."""


def _message(timed: TimedMessage) -> _Message:
    return (timed.operation, timed.degree_from, timed.degree_to, timed.bytes)


def _computed(predicted_s: float, measured_s: Sequence[float]) -> Corrected:
    middle_s = statistics.median(measured_s)
    spread = (max(measured_s) - min(measured_s)) / middle_s if middle_s > 0 else 0.0
    return _corrected("compute", predicted_s, middle_s, spread)


def _sent(timed: TimedMessage, on: Machine) -> Corrected:
    name = f"{operation_text(timed.operation, timed.degree_from, timed.degree_to)}, {bytes_text(timed.bytes)}"
    predicted_s = collective_time(*_message(timed), on.network).seconds
    return _corrected(name, predicted_s, timed.seconds, timed.spread)


def _corrected(name: str, predicted_s: float, measured_s: float, spread: float) -> Corrected:
    """Compares a figure.

    Raises:
        InputError: One is many times the other, or none.
    """
    ratio = measured_s / predicted_s if predicted_s > 0 else math.nan
    if not 1 / _ABSURD < ratio < _ABSURD:
        raise InputError(
            f"{name} was predicted to take {seconds_text(predicted_s)} and took {seconds_text(measured_s)}: that is no "
            "profile of this machine, or something else held the run up. Nothing was written; run it again, or measure "
            "the machine anew with `shardplan profile`"
        )
    return Corrected(name, predicted_s, measured_s, is_folded=abs(ratio - 1) > max(spread, _KNOWN))


def _compute_factor(planned: PlannedFolder, computed: Corrected) -> ComputeFactor:
    graph, precision = planned.graph, planned.plan.job.precision
    model, num_params = graph.name, graph.workload.num_params
    calibration = planned.profile.calibration or Calibration()
    factor = calibration.compute_factor(model, num_params, precision) * computed.folded_s / computed.predicted_s
    return ComputeFactor(model=model, num_params=num_params, precision=precision, factor=factor)


def _message_factors(on: Machine, sent: Sequence[tuple[_Message, Corrected]]) -> list[MessageFactor]:
    """Returns a factor for every message that was timed: one that was told well keeps what it has."""
    alone = replace(on.network, factors=())
    return [
        MessageFactor(
            operation=message[0],
            degree_from=message[1],
            degree_to=message[2],
            bytes=message[3],
            factor=each.folded_s / collective_time(*message, alone).seconds,
        )
        for message, each in sent
    ]


def _with_factors(profile: HardwareProfile, found: Sequence[_Factor], provenance: str) -> HardwareProfile:
    """Returns a profile with factors in place of those that it had for the same, and where each is from."""
    old = profile.calibration or Calibration()
    factors: dict[tuple[str, ...], tuple[_Factor, str]] = {}
    known: dict[str, tuple[_Factor, ...]] = {"compute": old.compute, "messages": old.messages}
    for kind, of_kind in known.items():
        for index, each in enumerate(of_kind):
            factors[_key(each)] = (each, profile.sources[f"calibration.{kind}.{index}"])
    factors.update({_key(each): (each, provenance) for each in found})
    ordered = [factors[key] for key in sorted(factors)]
    sources = {path: text for path, text in profile.sources.items() if not path.startswith("calibration.")}
    kept: dict[str, list[_Factor]] = {"compute": [], "messages": []}
    for each, source in ordered:
        kind = "compute" if isinstance(each, ComputeFactor) else "messages"
        sources[f"calibration.{kind}.{len(kept[kind])}"] = source
        kept[kind].append(each)
    document = profile.model_dump(exclude={"calibration", "sources"}, exclude_none=True)
    return HardwareProfile.model_validate({**document, "calibration": kept, "sources": sources})


def _key(factor: _Factor) -> tuple[str, ...]:
    """Returns what a factor is of; sorts messages by operation, degrees and bytes."""
    if isinstance(factor, ComputeFactor):
        return ("compute", factor.model, f"{factor.num_params:020}", factor.precision)
    numbers = (factor.degree_from, factor.degree_to, factor.bytes)
    return ("messages", factor.operation, *(f"{number:020}" for number in numbers))
