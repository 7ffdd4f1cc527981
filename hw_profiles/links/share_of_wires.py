"""How near a measured collective is to what the wires of its node allow."""

from __future__ import annotations

from hw_profiles.links.node_graph import node_graph
from hw_profiles.links.wire_bound import wire_bound_s
from hw_profiles.schema import Curve, HardwareProfile


def share_of_wires(profile: HardwareProfile, curve: Curve) -> float | None:
    """Returns the bound of the wires over the seconds of the curve's largest message, 1 for all that they allow.

    More than 1 cannot be, so the links are not those of the machine; but for an all-reduce that a switch sums, which
    may come near 2. None where the profile knows no links, or a group leaves the node.

    Raises:
        ProfileError: the profile's links do not join all ranks of a node.
    """
    if not profile.links or profile.ranks_per_node % curve.degree_to:
        return None
    last = curve.points[-1]
    return (
        wire_bound_s(node_graph(profile), curve.operation, curve.degree_from, curve.degree_to, last.bytes)
        / last.seconds
    )
