"""Chooses how many blocks of each class have which strategy, by CP-SAT, with a proof.

Sets: groups c of n_c equal blocks, degrees k = (p, g, o), secondaries s, manners f (gathered anew, kept or whole, and
reduced or not), blocks j of a group in order of execution, segments t of a micro-batch and the moments i in them. One
model for each micro-batch.

Variables
    x_ck in 0..n_c       blocks of group c with degrees k                                 (`_add_counts`)
    w_cpsg in 0..n_c     of those with this p, and g > 1 or not, how many have this s     (`_add_counts`)
    q_c in 0..n_c        blocks of group c that are recomputed                            (`_add_counts`)
    y_jf in {0, 1}       block j has manner f                                             (`_add_manners`)
    z_j in {0, 1}        block j is recomputed                                            (`_add_recomputed`)
    r in {0, 1}          every block that can be recomputed is                            (`_add_recomputed`)
    u_cv in {0, 1}       some block of c has v or more of something that counts once      (`_largest`)
    T_f, T_b >= 0        nanoseconds of forward, and of backward with its boundary        (`_add_time`)
    A_t >= 0             bytes alive when segment t begins                                (`_add_memory`)
    m >= 0               bytes of device memory at the step's peak                        (`_add_memory`)

Constraints
    sum_k x_ck = n_c,  sum_{k of p, g} x_ck = sum_s w_cpsg  for each p, and g > 1 or not  (`_add_counts`)
    sum_f y_jf = 1,  sum_j y_jf = sum_{psg of f} w_cpsg                                   (`_add_manners`)
    sum_{f' <= f} y_jf' >= sum_{f' <= f} y_if'       for each j and the next i of c       (`_add_manners`)
    sum_j z_j = q_c,  z_j >= z_i                     for each j and the next i of c       (`_add_recomputed`)
    r = min over blocks j that can be recomputed of z_j                                   (`_add_recomputed`)
    T >= a_0 + sum a x + sum a w + a q + longest     for both bounds of each phase        (`_add_time`)
    largest >= v u_cv,  n_c u_cv >= sum_{k: v_k >= v} x_ck                                (`_largest`)
    A_t = A_{t-1} + d_t + sum_jf d_tjf y_jf + sum_j d_tj z_j + d'_t r                     (`_add_memory`)
    m >= rest + A_t + b_ti + sum_jf b_tijf y_jf + sum_j b_tij z_j + b'_ti r + output      (`_add_memory`)
    m >= rest + sum_ck slices_ck x_ck + spread,  m <= budget                              (`_add_memory`)

where rest is the sum of model states over x and w. Objectives, the second minimised with the first held at its optimum:
T_f + T_b + optimizers, then m; or the other way round. See `planner.block_table` for which block has which of the
chosen strategies, and `planner.solve` for why OR-Tools' presolve is off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from ortools.sat.python import cp_model

from costmodels.compute import Computed
from costmodels.strategy import Strategy
from planner.block_table import BlockGroup, BlockTable, Choice, DegreesCost, GroupChoice, Held, SecondaryCost
from planner.block_totals import block_totals
from planner.cost_table import Amount
from planner.errors import UnsolvedError

Objectives = tuple[Amount, Amount]
MAX_DETERMINISTIC_TIME = 60.0
"""CP-SAT's own measure of work, about seconds, for each micro-batch and objective."""


@dataclass(frozen=True, slots=True)
class BlockSolution:
    """The best choice of all micro-batches, and its proof."""

    table: BlockTable
    """Of its micro-batch."""
    choice: Choice
    status: Literal["OPTIMAL", "FEASIBLE"]
    """OPTIMAL: both objectives were proved; FEASIBLE: a limit of work or seconds came first."""
    step_ns: int
    peak_bytes: int
    bound: int
    """No choice has less of the first objective."""


def solve_blocks(
    tables: Sequence[BlockTable],
    budget_bytes: int | None,
    objectives: Objectives = ("time", "memory"),
    time_limit_s: float | None = None,
) -> BlockSolution | None:
    """Returns the best choice within the budget over all micro-batches, or None when no choice fits.

    Args:
        tables: The costs, one table for each micro-batch; of equal choices that of the first table is taken.
        budget_bytes: Bytes of device memory; None: as many as any choice needs.
        objectives: What to minimise, the most important first.
        time_limit_s: Seconds for all, by the clock. None: only the limit of work, which stops at the same choice in
            every run.

    Raises:
        UnsolvedError: The limit came before any choice that fits was found.
    """
    ends_s = None if time_limit_s is None else time.perf_counter() + time_limit_s
    best: BlockSolution | None = None
    bounds: list[int] = []
    for table in sorted(tables, key=_compute_ns):
        found, bound = _solve(table, budget_bytes, objectives, best, ends_s)
        bounds += [] if bound is None else [bound]
        if found is not None and (best is None or _figures(found, objectives) < _figures(best, objectives)):
            best = found
    if best is None:
        if bounds:
            raise UnsolvedError(
                "no choice was found to fit within the limit of work or seconds, and whether one does is not known; "
                "leave --solve-time-limit out or give more seconds, or choose from fewer, by --micro-batch-size or "
                "--recompute"
            )
        return None
    bound = min(bounds)
    proved = best.status == "OPTIMAL" and bound == _figures(best, objectives)[0]
    return replace(best, status="OPTIMAL" if proved else "FEASIBLE", bound=bound)


def _compute_ns(table: BlockTable) -> int:
    """Returns what no step is shorter than."""
    return (table.forward.duration_ns + table.backward.duration_ns) * table.shape.num_micro_batches


def _figures(found: BlockSolution, objectives: Objectives) -> tuple[int, int]:
    time_first = objectives[0] == "time"
    return (found.step_ns, found.peak_bytes) if time_first else (found.peak_bytes, found.step_ns)


def _solve(
    table: BlockTable,
    budget_bytes: int | None,
    objectives: Objectives,
    best: BlockSolution | None,
    ends_s: float | None,
) -> tuple[BlockSolution | None, int | None]:
    """Returns the best of one micro-batch that is no worse than `best`, and a bound unless there is none at all."""
    least = _compute_ns(table) if objectives[0] == "time" else 0
    if best is not None and least > _figures(best, objectives)[0]:
        return None, least
    model = _Model(table, budget_bytes)
    solver = _solver()
    if best is not None:
        model.cp.add(model.amounts[objectives[0]] <= _figures(best, objectives)[0])
    bound: int | None = None
    choice: Choice | None = None
    proved = []
    for objective in objectives:
        model.cp.minimize(model.amounts[objective])
        if ends_s is not None:
            solver.parameters.max_time_in_seconds = max(0.0, ends_s - time.perf_counter())
        status = solver.solve(model.cp)
        if status == cp_model.MODEL_INVALID:
            raise AssertionError(model.cp.validate())
        if bound is None and status != cp_model.INFEASIBLE:
            bound = least if status == cp_model.UNKNOWN else max(least, round(solver.best_objective_bound))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        proved.append(status == cp_model.OPTIMAL)
        choice = model.choice(solver)
        model.hold(objective, solver)
    if choice is None or bound is None:
        # Nothing here is as good as what is known, or nothing fits, or nothing was found in time.
        return None, bound
    step_ns, peak_bytes = block_totals(table, choice)
    status_name: Literal["OPTIMAL", "FEASIBLE"] = "OPTIMAL" if proved == [True] * len(objectives) else "FEASIBLE"
    return BlockSolution(table, choice, status_name, step_ns, peak_bytes, bound), bound


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.cp_model_presolve = False
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_TIME
    return solver


class _Model:
    """The CP-SAT model of a table; built once, minimised once per objective."""

    def __init__(self, table: BlockTable, budget_bytes: int | None) -> None:
        self.cp = cp_model.CpModel()
        self._table = table
        most_bytes = _most_bytes(table)
        self._most_bytes = most_bytes if budget_bytes is None else min(budget_bytes, most_bytes)
        self._add_counts()
        self._add_manners()
        self._add_recomputed()
        self.amounts: dict[Amount, cp_model.LinearExprT] = {"time": self._add_time(), "memory": self._add_memory()}

    def _add_counts(self) -> None:
        self._degrees: list[list[cp_model.IntVar]] = []
        self._secondaries: list[dict[tuple[int, bool], cp_model.IntVar]] = []
        for number, group in enumerate(self._table.groups):
            size = len(group.blocks)
            row = [self.cp.new_int_var(0, size, f"degrees_{number}_{k}") for k in range(len(group.degrees))]
            self.cp.add(_plus(*row) == size)
            columns = {
                (k, is_reduced): self.cp.new_int_var(0, size, f"secondary_{number}_{k}_{is_reduced}")
                for k in range(len(group.secondaries))
                for is_reduced in (False, True)
            }
            for p in sorted({each.param_degree for each in group.degrees}):
                for is_reduced in (False, True):
                    have = [
                        x
                        for x, each in zip(row, group.degrees, strict=True)
                        if each.param_degree == p and each.is_reduced == is_reduced
                    ]
                    gather = [
                        columns[k, is_reduced] for k, each in enumerate(group.secondaries) if each.param_degree == p
                    ]
                    self.cp.add(_plus(*have) == _plus(*gather))
            self._degrees.append(row)
            self._secondaries.append(columns)

    def _add_manners(self) -> None:
        self._manners: dict[int, list[cp_model.IntVar]] = {}
        for group, columns in zip(self._table.groups, self._secondaries, strict=True):
            for block in group.blocks:
                row = [self.cp.new_bool_var(f"block_{block}_manner_{f}") for f in range(len(group.manners))]
                self._manners[block] = row
                self.cp.add_exactly_one(row)
            for f, (gathered, reduced) in enumerate(group.manners):
                of_manner = [
                    w
                    for (k, is_reduced), w in columns.items()
                    if is_reduced == reduced and group.secondaries[k].gathered == gathered
                ]
                self.cp.add(_plus(*(self._manners[block][f] for block in group.blocks)) == _plus(*of_manner))
            for block, following in pairwise(group.blocks):
                for f in range(1, len(group.manners)):
                    self.cp.add(_plus(*self._manners[block][:f]) >= _plus(*self._manners[following][:f]))

    def _add_recomputed(self) -> None:
        self._num_recomputed: list[cp_model.IntVar] = []
        self._recomputed: dict[int, cp_model.IntVar] = {}
        self._all_recomputed = self.cp.new_bool_var("all_recomputed")
        last = []
        for number, group in enumerate(self._table.groups):
            least, most = group.least_recomputed, group.most_recomputed
            self._num_recomputed.append(self.cp.new_int_var(least, most, f"recomputed_{number}"))
            if not group.recomputable:
                continue
            row = [self.cp.new_bool_var(f"block_{block}_recomputed") for block in group.blocks]
            self.cp.add(_plus(*row) == self._num_recomputed[-1])
            for before, after in pairwise(row):
                self.cp.add_implication(after, before)
            self._recomputed.update(zip(group.blocks, row, strict=True))
            last.append(row[-1])
            self.cp.add_implication(self._all_recomputed, row[-1])
        self.cp.add(_plus(self._all_recomputed, len(last) - 1) >= _plus(*last))

    def _add_time(self) -> cp_model.LinearExprT:
        table, times = self._table, self._table.shape.num_micro_batches
        again = [(number, group.again) for number, group in zip(self._num_recomputed, table.groups, strict=True)]

        def recomputed(value: Callable[[Computed], int]) -> cp_model.LinearExprT:
            return cp_model.LinearExpr.weighted_sum(
                [number for number, _ in again], [value(computed) for _, computed in again]
            )

        gathers = (self._sum(lambda d: d.forward.bare_ns), self._largest("gather", lambda d: d.forward.longest_ns))
        reductions = (
            self._sum(lambda d: d.reduced.bare_ns, lambda s: s.backward.bare_ns),
            self._largest("reduction", lambda d: d.reduced.longest_ns),
        )
        spread = self._sum(lambda d: d.spread.duration_ns)
        boundary = self._sum(lambda d: d.boundary.duration_ns)
        forward = self._phase(
            "forward",
            (
                (table.forward.duration_ns - table.forward.overlappable_ns) * times,
                self._sum(lambda d: d.forward.duration_ns),
                spread,
            ),
            (
                table.forward.duration_ns * times,
                *gathers,
                self._sum(lambda d: d.spread.bare_ns),
                self._largest("spread", lambda d: d.spread.longest_ns),
            ),
            (table.forward.duration_ns * times - table.forward.overlappable_ns, *gathers, spread),
        )
        backward = self._phase(
            "backward",
            (
                (table.backward.duration_ns - table.backward.overlappable_ns) * times,
                recomputed(lambda each: (each.duration_ns - each.overlappable_ns) * times),
                self._sum(lambda d: d.reduced.duration_ns, lambda s: s.backward.duration_ns),
                boundary,
            ),
            (
                table.backward.duration_ns * times,
                recomputed(lambda each: each.duration_ns * times),
                *reductions,
                self._sum(lambda d: d.boundary.bare_ns),
                self._largest("boundary", lambda d: d.boundary.longest_ns),
            ),
            (
                table.backward.duration_ns * times - table.backward.overlappable_ns,
                recomputed(lambda each: each.duration_ns * times - each.overlappable_ns),
                *reductions,
                boundary,
            ),
        )
        return _plus(forward, backward, self._sum(lambda d: d.optimizer_ns))

    def _phase(self, name: str, *bounds: tuple[cp_model.LinearExprT, ...]) -> cp_model.IntVar:
        """Returns a variable that is at least each of the sums."""
        phase = self.cp.new_int_var(0, _most_ns(self._table), f"{name}_ns")
        for bound in bounds:
            self.cp.add(phase >= _plus(*bound))
        return phase

    def _add_memory(self) -> cp_model.LinearExprT:
        memory = self.cp.new_int_var(0, self._most_bytes, "memory_bytes")
        rest = self.cp.new_int_var(0, self._most_bytes, "rest_bytes")
        states = self._sum(lambda d: d.rest_bytes, lambda s: s.rest_bytes)
        self.cp.add(rest == _plus(self._table.always_bytes, states))
        output = self._largest("output", lambda d: d.output_bytes)
        spread = self._largest("spreading", lambda d: d.spread_bytes)
        self.cp.add(memory >= _plus(rest, self._sum(lambda d: d.update_bytes), spread))
        before: cp_model.LinearExprT = 0
        for number, stretch in enumerate(self._table.stretches):
            alive = self.cp.new_int_var(0, self._most_bytes, f"alive_{number}")
            self.cp.add(alive == _plus(before, self._held(stretch.change)))
            for moment in stretch.moments:
                once = [output] if stretch.is_backward else []
                self.cp.add(memory >= _plus(rest, alive, self._held(moment), *once))
            before = alive
        return memory

    def _sum(
        self, of_degrees: Callable[[DegreesCost], int], of_secondary: Callable[[SecondaryCost], int] | None = None
    ) -> cp_model.LinearExprT:
        """Returns the sum of a cost over all blocks."""
        variables: list[cp_model.IntVar] = []
        factors: list[int] = []
        for group, row, columns in zip(self._table.groups, self._degrees, self._secondaries, strict=True):
            variables += row
            factors += [of_degrees(each) for each in group.degrees]
            if of_secondary is not None:
                variables += columns.values()
                factors += [of_secondary(group.secondaries[k]) for k, _ in columns]
        return cp_model.LinearExpr.weighted_sum(variables, factors)

    def _largest(self, name: str, value: Callable[[DegreesCost], int]) -> cp_model.IntVar:
        """Returns a variable that is at least the cost of every block."""
        greatest = max((value(each) for group in self._table.groups for each in group.degrees), default=0)
        largest = self.cp.new_int_var(0, greatest, name)
        for number, (group, row) in enumerate(zip(self._table.groups, self._degrees, strict=True)):
            for each in sorted({value(cost) for cost in group.degrees} - {0}):
                used = self.cp.new_bool_var(f"{name}_{number}_{each}")
                as_large = [x for x, cost in zip(row, group.degrees, strict=True) if value(cost) >= each]
                self.cp.add(len(group.blocks) * used >= _plus(*as_large))
                self.cp.add(largest >= each * used)
        return largest

    def _held(self, held: Held) -> cp_model.LinearExprT:
        variables: list[cp_model.IntVar] = [self._all_recomputed]
        factors = [held.if_all_recomputed]
        for term in held.terms:
            variables += self._manners[term.block]
            factors += term.by_manner
            if term.if_recomputed:
                variables.append(self._recomputed[term.block])
                factors.append(term.if_recomputed)
        return _plus(cp_model.LinearExpr.weighted_sum(variables, factors), held.constant)

    def hold(self, objective: Amount, solver: cp_model.CpSolver) -> None:
        """Keeps an objective at its value, and starts the next solve from this one's answer."""
        self.cp.add(self.amounts[objective] <= round(solver.objective_value))
        self.cp.clear_hints()  # type: ignore[no-untyped-call]
        rows = (*self._degrees, *self._manners.values(), self._num_recomputed, self._recomputed.values())
        columns = (each.values() for each in self._secondaries)
        for variable in (variable for row in (*rows, *columns) for variable in row):
            self.cp.add_hint(variable, solver.value(variable))

    def choice(self, solver: cp_model.CpSolver) -> Choice:
        """Returns what is chosen for each group."""
        parts = zip(self._table.groups, self._degrees, self._secondaries, self._num_recomputed, strict=True)
        return tuple(
            GroupChoice(_paired(group, row, columns, solver), solver.value(number))
            for group, row, columns, number in parts
        )


def _paired(
    group: BlockGroup,
    row: list[cp_model.IntVar],
    columns: dict[tuple[int, bool], cp_model.IntVar],
    solver: cp_model.CpSolver,
) -> tuple[tuple[Strategy, int], ...]:
    """Returns whole strategies: which (p, g, o) has which s makes no difference where p and g > 1 agree."""
    waiting: dict[tuple[int, bool], list[int]] = {}
    for (k, is_reduced), w in columns.items():
        each = group.secondaries[k]
        waiting.setdefault((each.param_degree, is_reduced), []).extend([each.secondary_degree] * solver.value(w))
    found: dict[Strategy, int] = {}
    for x, degrees in zip(row, group.degrees, strict=True):
        for _ in range(solver.value(x)):
            secondary = waiting[degrees.param_degree, degrees.is_reduced].pop(0)
            strategy = Strategy(degrees.param_degree, secondary, degrees.grad_degree, degrees.optim_degree)
            found[strategy] = found.get(strategy, 0) + 1
    return tuple(found.items())


def _most_ns(table: BlockTable) -> int:
    """Returns nanoseconds that no phase exceeds."""
    sent_ns = sum(
        len(group.blocks)
        * max(
            each.forward.duration_ns + each.reduced.duration_ns + each.boundary.duration_ns + each.spread.duration_ns
            for each in group.degrees
        )
        + len(group.blocks) * max(each.backward.duration_ns for each in group.secondaries)
        + len(group.blocks) * group.again.duration_ns * table.shape.num_micro_batches
        for group in table.groups
    )
    return sent_ns + _compute_ns(table)


def _most_bytes(table: BlockTable) -> int:
    """Returns bytes that no peak exceeds."""
    states_bytes = sum(
        len(group.blocks)
        * (
            max(each.rest_bytes + each.update_bytes for each in group.degrees)
            + max(each.rest_bytes for each in group.secondaries)
        )
        for group in table.groups
    )
    once_bytes = max(each.spread_bytes + each.output_bytes for group in table.groups for each in group.degrees)
    alive_bytes, most_alive_bytes = 0, 0
    for stretch in table.stretches:
        alive_bytes += _most_held(stretch.change)
        most_alive_bytes = max(most_alive_bytes, *(alive_bytes + _most_held(moment) for moment in stretch.moments))
    return table.always_bytes + states_bytes + once_bytes + most_alive_bytes


def _most_held(held: Held) -> int:
    of_blocks = sum(max(term.by_manner) + max(0, term.if_recomputed) for term in held.terms)
    return held.constant + of_blocks + max(0, held.if_all_recomputed)


def _plus(*parts: cp_model.LinearExprT) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.sum(parts)
