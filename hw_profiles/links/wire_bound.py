"""What the wires of a graph allow at best for a collective: a lower bound of its seconds, by linear programming.

All groups of a kind run at once: ranks of equal r mod degree_from inside blocks of degree_to, n = degree_to /
degree_from members each. A message of B bytes is infinitely divisible and may take any way, through other ranks too;
start-ups cost nothing; c(e) is the bandwidth of link e and T the seconds. Least T such that

- all-to-all: each member s has B/n for each other member. A flow f_s from s into all of them, exact:
      sum_s f_s(e) <= T c(e)
- all-gather, broadcast: a byte may be copied wherever it passes, by switches too. y_g(e) are the bytes of group g on
  link e, and of them every member t must be able to get all that it lacks (B/n from each other member; B from the
  root), so for every t there is a flow f_gt into t with
      f_gt(e) <= y_g(e),     sum_g y_g(e) <= T c(e)
- reduce-scatter, reduce: partial sums flow the other way, and one byte of a sum carries at most one byte of what a
  member contributes. So the same on the reversed graph; a switch may sum where it may copy there.
- all-reduce: what each member contributes must reach all others, so flows of B between the first member and every
  other one, both ways, each <= y_g(e). Only ranks sum: an element of the message arrives at ranks n - 1 times or more
  until one of them has its sum, since its n parts must meet, and once more at each of the other members, so
      sum over links e into a rank, y_g(e) >= 2 (n - 1) B
  A switch that sums (NVLink SHARP) needs less and can undercut this bound (to n / 2 (n - 1) of it in a star).

No run undercuts it otherwise; that one is as fast is not said.

Source: R. Ahlswede et al., Network information flow, IEEE Trans. Inf. Theory 46 (2000): each sink's flow bounds a
multicast; P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69 (2009): the 2 (n - 1) B.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ortools.linear_solver import pywraplp

from hw_profiles.links.check_connected import check_connected
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import Operation

_REVERSED: dict[Operation, Operation] = {"reduce_scatter": "all_gather", "reduce": "broadcast"}
"""Which operation on the reversed graph bounds it."""

_OnLinks = list[pywraplp.Variable]
"""Bytes on each link, in the order of `LinkGraph.links`."""


def wire_bound_s(
    graph: LinkGraph, operation: Operation, degree_from: int, degree_to: int, message_bytes: float
) -> float:
    """Returns the seconds that no run of the collective over these wires can undercut, all groups at once.

    Args:
        graph: the wires; its ranks are the world.
        operation: what is run. The first member of a group is the root of a broadcast or reduce.
        degree_from: a group has the ranks of equal r mod degree_from ...
        degree_to: ... inside one block of degree_to ranks.
        message_bytes: the full message before sharding.

    Raises:
        ValueError: the degrees do not divide each other and the number of ranks.
        ProfileError: some ranks do not reach others.
    """
    num_ranks = len(graph.ranks)
    if degree_from < 1 or degree_to < degree_from or degree_to % degree_from or num_ranks % degree_to:
        raise ValueError(f"no groups between degrees {degree_from} and {degree_to} of {num_ranks} ranks")
    if degree_from == degree_to:
        return 0.0
    return message_bytes * _seconds_per_byte(graph, operation, degree_from, degree_to)


@lru_cache(maxsize=1024)
def _seconds_per_byte(graph: LinkGraph, operation: Operation, degree_from: int, degree_to: int) -> float:
    check_connected(graph)
    program = _Program(graph, is_reversed=operation in _REVERSED)
    for block in range(0, len(graph.ranks), degree_to):
        for first in range(degree_from):
            members = range(block + first, block + degree_to, degree_from)
            program.add(_REVERSED.get(operation, operation), [graph.ranks[rank] for rank in members])
    return program.least_seconds()


class _Program:
    """The linear program for one byte: T, what every group puts on every link, and the flows below it."""

    def __init__(self, graph: LinkGraph, *, is_reversed: bool) -> None:
        self._vertices = (*graph.ranks, *graph.switches)
        ends = [(link.source, link.target) for link in graph.links]
        self._ends = [end[::-1] for end in ends] if is_reversed else ends
        self._into_ranks = [target in frozenset(graph.ranks) for _, target in self._ends]
        self._fastest = max(link.bytes_per_s for link in graph.links)
        self._capacities = [link.bytes_per_s / self._fastest for link in graph.links]
        self._solver = pywraplp.Solver.CreateSolver("GLOP")  # type: ignore[no-untyped-call]
        self._loads: list[_OnLinks] = []

    def add(self, operation: Operation, members: Sequence[str]) -> None:
        """Adds what one group does."""
        first, others, n = members[0], members[1:], len(members)
        if operation == "all_to_all":
            for member in members:
                self._loads.append(self._flow(dict.fromkeys(members, -1 / n) | {member: 1 - 1 / n}))
        elif operation == "all_gather":
            self._share([dict.fromkeys(members, 1 / n) | {sink: 1 / n - 1} for sink in members])
        elif operation == "broadcast":
            self._share([{first: 1.0, sink: -1.0} for sink in others])
        else:
            there = [{first: 1.0, other: -1.0} for other in others]
            back = [{other: 1.0, first: -1.0} for other in others]
            arriving = self._share([*there, *back])
            self._at_least(
                2.0 * (n - 1), [load for load, counts in zip(arriving, self._into_ranks, strict=True) if counts]
            )

    def least_seconds(self) -> float:
        """Returns the least T, for one byte."""
        seconds = self._solver.NumVar(0, self._solver.infinity(), "T")
        for number, capacity in enumerate(self._capacities):
            constraint = self._solver.Constraint(0, self._solver.infinity())
            constraint.SetCoefficient(seconds, capacity)
            for load in self._loads:
                constraint.SetCoefficient(load[number], -1)
        self._solver.Minimize(seconds)
        status = self._solver.Solve()
        # A connected graph carries every flow in some time, so there is an optimum.
        assert status == pywraplp.Solver.OPTIMAL, f"GLOP ended with status {status}"
        return float(self._solver.Objective().Value()) / self._fastest

    def _flow(self, supply: dict[str, float]) -> _OnLinks:
        """Adds a flow that takes `supply` from where it is positive to where it is negative."""
        flow = self._on_links()
        balance = {}
        for vertex in self._vertices:
            balance[vertex] = self._solver.Constraint(supply.get(vertex, 0.0), supply.get(vertex, 0.0))
        for (source, target), variable in zip(self._ends, flow, strict=True):
            balance[source].SetCoefficient(variable, 1)
            balance[target].SetCoefficient(variable, -1)
        return flow

    def _share(self, supplies: Sequence[dict[str, float]]) -> _OnLinks:
        """Adds what one group puts on the links where its bytes serve every flow of `supplies`."""
        shared = self._on_links()
        self._loads.append(shared)
        for supply in supplies:
            for most, variable in zip(shared, self._flow(supply), strict=True):
                constraint = self._solver.Constraint(0, self._solver.infinity())
                constraint.SetCoefficient(most, 1)
                constraint.SetCoefficient(variable, -1)
        return shared

    def _at_least(self, least: float, variables: _OnLinks) -> None:
        constraint = self._solver.Constraint(least, self._solver.infinity())
        for variable in variables:
            constraint.SetCoefficient(variable, 1)

    def _on_links(self) -> _OnLinks:
        return [self._solver.NumVar(0, self._solver.infinity(), "") for _ in self._ends]
