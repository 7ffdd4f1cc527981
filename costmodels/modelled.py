"""What a collective takes by its algorithm on the levels of the machine, whatever was measured.

The algorithms that the machine is known to use (`costmodels.algorithms` has their formulas; `port`, the least that any
can take, where none is known) are run on the levels' bandwidths, efficiencies and start-ups, and the fastest counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from costmodels.algorithms import Algorithm, Load, loads
from costmodels.engine import Operation
from costmodels.geometry import Geometry, geometry
from costmodels.network import Network, NetworkLevel


@dataclass(frozen=True, slots=True)
class ModelledPhase:
    """One phase of an algorithm: what decides how long it takes."""

    slowest: Load
    """The load on the level that takes the longest."""
    bandwidth_s: float
    """Seconds that this level's links need for it."""


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """What a collective takes by an algorithm: its phases in turn, and start-ups."""

    algorithm: Algorithm
    phases: tuple[ModelledPhase, ...]
    startups_s: float
    hidden_s: float
    """Of the lesser of both, what hides behind the greater."""

    @property
    def transfer_s(self) -> float:
        """Seconds that the links need."""
        return sum(phase.bandwidth_s for phase in self.phases)

    @property
    def seconds(self) -> float:
        """Seconds of the collective."""
        return self.transfer_s + self.startups_s - self.hidden_s


def known_algorithms(operation: Operation, network: Network) -> tuple[Algorithm, ...]:
    """Returns how the operation is run on the network: by the fastest of these; `port` where none is known."""
    return next((known for name, known in network.algorithms if name == operation), ("port",))


def modelled_time(
    operation: Operation,
    degree_from: int,
    degree_to: int,
    message_bytes: float,
    network: Network,
    algorithm: Algorithm | None = None,
) -> ModelledTime:
    """Returns what the fastest of the network's algorithms for the operation takes, whatever was measured.

    Args:
        operation: As for `collectives.collective_time`.
        degree_from: As for `collectives.collective_time`.
        degree_to: As for `collectives.collective_time`.
        message_bytes: As for `collectives.collective_time`.
        network: As for `collectives.collective_time`.
        algorithm: This one, whichever the network's are.

    Raises:
        ValueError: As for `collectives.collective_time`, or the algorithm cannot run the operation.
    """
    spanned = geometry(tuple(level.size for level in network.levels), degree_from, degree_to)
    known = (algorithm,) if algorithm else known_algorithms(operation, network)
    times = [_by(each, operation, spanned, message_bytes, network) for each in known]
    return min(times, key=lambda time: time.seconds)


def _by(
    algorithm: Algorithm,
    operation: Operation,
    spanned: Sequence[Geometry],
    message_bytes: float,
    network: Network,
) -> ModelledTime:
    levels = network.levels
    phases = []
    startups_s = dict(network.calls_s).get(operation, 0.0)
    for on_levels in loads(algorithm, operation, spanned, message_bytes):
        timed = [
            ModelledPhase(
                load, load.entering_bytes / _rate(levels[load.geometry.level], operation, load.geometry.units)
            )
            for load in on_levels
        ]
        if timed:
            phases.append(max(timed, key=lambda phase: phase.bandwidth_s))
            startups_s += _startups_s(on_levels, operation, levels)
    hidden_s = network.startups_hidden * min(sum(phase.bandwidth_s for phase in phases), startups_s)
    return ModelledTime(algorithm, tuple(phases), startups_s, hidden_s)


def _startups_s(on_levels: Sequence[Load], operation: Operation, levels: Sequence[NetworkLevel]) -> float:
    """Returns the start-ups of one phase over its levels, the quickest of its ways."""
    alphas = [_alpha_s(levels[load.geometry.level], operation) for load in on_levels]
    num_ways = len(on_levels[0].startups)
    return min(
        sum(load.startups[way] * alpha_s for load, alpha_s in zip(on_levels, alphas, strict=True))
        for way in range(num_ways)
    )


@lru_cache(maxsize=256)
def _rate(level: NetworkLevel, operation: Operation, units: int) -> float:
    """Returns the bytes per second into one unit that the operation reaches in groups that span `units` of them."""
    links = (units - 1) / (level.size - 1) if level.is_mesh else 1.0
    return level.unit_bytes_per_s * links * dict(level.efficiency).get(operation, 1.0)


@lru_cache(maxsize=256)
def _alpha_s(level: NetworkLevel, operation: Operation) -> float:
    return level.alpha_s * dict(level.startup).get(operation, 1.0)
