"""Bytes per second between vertices of a graph of links: the capacities as a matrix, and largest flows over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from hw_profiles.links.link_graph import LinkGraph

Matrix = NDArray[np.float64]

_WHOLE = 2**29
"""Capacities are whole numbers to the solver: the largest sum of them becomes this, far inside 32 bits."""
_EXACT, _MOST_ROUNDS = 1e-6, 8
"""What rounding to whole numbers may change of a flow, and how often to try for it."""


def capacities(graph: LinkGraph) -> Matrix:
    """Returns the bytes per second of each link: a row per source, a column per target, ranks before switches."""
    place = {vertex: index for index, vertex in enumerate((*graph.ranks, *graph.switches))}
    matrix = np.zeros((len(place), len(place)))
    for link in graph.links:
        matrix[place[link.source], place[link.target]] = link.bytes_per_s
    return matrix


def entering(matrix: Matrix, unit: Sequence[int], others: Sequence[int], num_ranks: int) -> float:
    """Returns the bytes per second that the ranks `others` can send into the ranks `unit` together.

    Over links and switches; ranks of neither pass nothing on.

    Args:
        matrix: of `capacities`.
        unit: ranks that receive.
        others: ranks that send.
        num_ranks: rows of `matrix` that are ranks; the rest are switches.
    """
    switches = range(num_ranks, len(matrix))
    if not switches:
        return float(matrix[np.ix_(others, unit)].sum())
    # The senders become one vertex, and the receivers another: what is inside either costs nothing.
    inner = matrix[np.ix_(switches, switches)]
    from_others = matrix[np.ix_(others, switches)].sum(axis=0)
    to_unit = matrix[np.ix_(switches, unit)].sum(axis=1)
    small = np.zeros((len(switches) + 2, len(switches) + 2))
    small[2:, 2:], small[0, 2:], small[2:, 1] = inner, from_others, to_unit
    small[0, 1] = matrix[np.ix_(others, unit)].sum()
    return _largest_flow(small)


def pair_bandwidths(matrix: Matrix, num_ranks: int) -> Matrix:
    """Returns what each two ranks exchange alone, over their own link and switches: the less of the two directions.

    Shape (num_ranks, num_ranks), zeros on the diagonal.
    """
    between = matrix[:num_ranks, :num_ranks].copy()
    if len(matrix) > num_ranks:
        known: dict[tuple[bytes, bytes, float], float] = {}
        for source in range(num_ranks):
            for target in range(num_ranks):
                # Ranks with equal links to the switches are alike: one flow answers for all of them.
                key = (
                    matrix[source, num_ranks:].tobytes(),
                    matrix[num_ranks:, target].tobytes(),
                    matrix[source, target],
                )
                if source != target and key not in known:
                    known[key] = entering(matrix, (target,), (source,), num_ranks)
                between[source, target] = known[key] if source != target else 0.0
    return np.minimum(between, between.T)


def _largest_flow(matrix: Matrix) -> float:
    """Returns the largest flow from vertex 0 to vertex 1.

    Whole numbers of 32 bits hide narrow links beside wide ones, so the links are cut to what can flow at most until
    rounding is no matter.
    """
    most = min(matrix[0].sum(), matrix[:, 1].sum())
    flow = 0.0
    for _ in range(_MOST_ROUNDS):
        links = np.minimum(matrix, most)
        largest = max(links.sum(axis=0).max(), links.sum(axis=1).max())
        if largest == 0:
            return 0.0
        unit = largest / _WHOLE
        flow = maximum_flow(csr_array(np.rint(links / unit).astype(np.int32)), 0, 1).flow_value * unit
        rounding = unit * np.count_nonzero(links)
        if rounding <= _EXACT * flow:
            break
        most = min(most, flow + rounding)
    return float(flow)
