"""The machine as the cost models see it, from a hardware profile."""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.network import DeviceSpeed, HostSpeed, MessageFactor, Network, NetworkCurve, NetworkLevel
from costmodels.strategy import Precision
from hw_profiles.schema import Calibration, HardwareProfile
from planner.errors import InputError
from planner.model_graph import ModelGraph


@dataclass(frozen=True, slots=True)
class Machine:
    """Links and devices for one precision. Plain numbers."""

    network: Network
    speed: DeviceSpeed
    peak_flop_per_s: float
    """The vendor's dense peak of one rank's device."""
    usable_bytes: int
    """Device memory that tensors can have."""
    ranks_per_node: int
    host_bytes: int | None = None
    """Host memory per rank; None: not known."""

    @property
    def world_size(self) -> int:
        """Ranks of the whole machine."""
        return self.network.world_size

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Sizes of the levels, inner first."""
        return tuple(level.size for level in self.network.levels)


def machine(profile: HardwareProfile, precision: Precision, graph: ModelGraph | None = None) -> Machine:
    """Returns the machine of a profile when it computes in `precision`.

    Args:
        profile: What is known of it.
        precision: Of its products.
        graph: The model that it computes, which runs of may have told how fast it is; None: any.

    Raises:
        InputError: The device does not compute in this precision.
    """
    device = profile.known_device
    if precision not in device.matmul_flop_per_s:
        known = ", ".join(sorted(device.matmul_flop_per_s))
        raise InputError(
            f"{profile.name}: the profile of {device.name} has no speed for {precision}; use --precision {known}"
        )
    calibration = profile.calibration or Calibration()
    slower = calibration.compute_factor(graph.name, graph.workload.num_params, precision) if graph else 1.0
    return Machine(
        network=Network(
            levels=tuple(
                NetworkLevel(
                    level.size,
                    level.unit_bytes_per_s,
                    level.alpha_s,
                    tuple(sorted(level.efficiency.items())),
                    tuple(sorted(level.startup.items())),
                    level.is_mesh,
                )
                for level in profile.levels
            ),
            algorithms=tuple(sorted(profile.algorithms.items())),
            calls_s=tuple(sorted(profile.calls_s.items())),
            startups_hidden=profile.startups_hidden or 0.0,
            curves=tuple(
                NetworkCurve(
                    curve.operation,
                    curve.degree_from,
                    curve.degree_to,
                    tuple((point.bytes, point.seconds) for point in curve.points),
                )
                for curve in profile.curves
            ),
            factors=tuple(
                MessageFactor(each.operation, each.degree_from, each.degree_to, each.bytes, each.factor)
                for each in calibration.messages
            ),
        ),
        speed=DeviceSpeed(
            device.matmul_flop_per_s[precision] / slower,
            device.memory_bytes_per_s / slower,
            device.operator_launch_s * slower,
            device.overlap,
            _host(profile),
        ),
        peak_flop_per_s=device.peak_flop_per_s[precision],
        usable_bytes=device.memory_bytes - device.reserved_bytes,
        ranks_per_node=profile.ranks_per_node,
        host_bytes=None if profile.host is None else profile.host.memory_bytes // profile.ranks_per_node,
    )


def _host(profile: HardwareProfile) -> HostSpeed | None:
    """Returns a rank's part of its node's host: a CPU's memory is the host's."""
    host = profile.host
    if host is None:
        return None
    if profile.device.kind == "cpu":
        return HostSpeed(host.link_bytes_per_s, profile.known_device.memory_bytes_per_s)
    shared = host.memory_bytes_per_s
    part = host.link_bytes_per_s if shared is None else shared / profile.ranks_per_node
    return HostSpeed(host.link_bytes_per_s, part)
