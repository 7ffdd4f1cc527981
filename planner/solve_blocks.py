"""Chooses how many blocks of each class have which strategy, by CP-SAT, with a proof.

Sets: groups c of n_c equal blocks, their strategies k, their manners f (each k is of one), blocks j of a group in order
of execution, segments t of a micro-batch and the moments i in them. One model for each micro-batch.

Variables
    x_ck in 0..n_c       blocks of group c with strategy k                                (`_add_counts`)
    y_jf in {0, 1}       block j has manner f                                             (`_add_manners`)
    r in {0, 1}          every block that can be recomputed is                            (`_add_all_recomputed`)
    u_cv in {0, 1}       some block of c has v or more of something that counts once      (`_largest`)
    T_f, T_b >= 0        nanoseconds of forward, and of backward with its boundary        (`_add_time`)
    A_t >= 0             bytes alive when segment t begins                                (`_add_memory`)
    m >= 0               bytes of device memory at the step's peak                        (`_add_memory`)

Constraints
    sum_k x_ck = n_c                                                                      (`_add_counts`)
    sum_f y_jf = 1,  sum_j y_jf = sum_{k of f} x_ck                                       (`_add_manners`)
    sum_{f' <= f} y_jf' >= sum_{f' <= f} y_if'       for each j and the next i of c       (`_add_manners`)
    r = min over blocks of whether they are recomputed                                    (`_add_all_recomputed`)
    T >= a_0 + sum_ck a_ck x_ck + longest message    for both bounds of each phase        (`_add_time`)
    largest >= v u_cv,  n_c u_cv >= sum_{k: v_k >= v} x_ck                                (`_largest`)
    A_t = A_{t-1} + d_t + sum_jf d_tjf y_jf + d'_t r                                      (`_add_memory`)
    m >= sum_ck rest_ck x_ck + A_t + b_ti + sum_jf b_tijf y_jf + b'_ti r + output         (`_add_memory`)
    m >= sum_ck (rest_ck + slices_ck) x_ck + spread                                       (`_add_memory`)
    m <= budget                                                                           (`_Model`)

Objectives, the second minimised with the first held at its optimum: T_f + T_b + sum_ck alone_ck x_ck, then m; or the
other way round.

Counts are chosen, not assignments: equal blocks take their strategies in the order of the table, so that no two choices
differ by names alone. Only the greatest of the sums in which blocks of a group differ depends on which block has which
strategy; that is what y is for. See `planner.solve` for why OR-Tools' presolve is off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ortools.sat.python import cp_model

from planner.block_table import BlockCost, BlockTable, Counts, Held
from planner.cost_table import Amount

Objectives = tuple[Amount, Amount]
MAX_DETERMINISTIC_TIME = 60.0
"""CP-SAT's own measure of work, about seconds, for each micro-batch and objective."""


@dataclass(frozen=True, slots=True)
class BlockSolution:
    """The best counts of all micro-batches, and their proof."""

    table: BlockTable
    """Of its micro-batch."""
    counts: Counts
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
    """Returns the best counts within the budget over all micro-batches, or None when none was found.

    Args:
        tables: The costs, one table for each micro-batch; of equal choices that of the first table is taken.
        budget_bytes: Bytes of device memory; None: as many as any choice needs.
        objectives: What to minimise, the most important first.
        time_limit_s: Seconds for all, by the clock. None: only the limit of work, which stops at the same choice in
            every run.
    """
    ends_s = None if time_limit_s is None else time.perf_counter() + time_limit_s
    best: BlockSolution | None = None
    bounds: list[int] = []
    for table in sorted(tables, key=lambda table: table.least(objectives[0])):
        found, bound = _solve(table, budget_bytes, objectives, best, ends_s)
        bounds += [] if bound is None else [bound]
        if found is not None and (best is None or _figures(found, objectives) < _figures(best, objectives)):
            best = found
    if best is None:
        return None
    bound = min(bounds)
    proved = best.status == "OPTIMAL" and bound == _figures(best, objectives)[0]
    return BlockSolution(
        best.table, best.counts, "OPTIMAL" if proved else "FEASIBLE", best.step_ns, best.peak_bytes, bound
    )


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
    """Returns the best of one micro-batch that is no worse than `best`, and a bound where one is known."""
    least = table.least(objectives[0])
    if best is not None and least > _figures(best, objectives)[0]:
        return None, least
    model = _Model(table, budget_bytes)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.cp_model_presolve = False
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_TIME
    if best is not None:
        model.cp.add(model.amounts[objectives[0]] <= _figures(best, objectives)[0])
    bound: int | None = None
    counts: Counts | None = None
    proved = []
    for objective in objectives:
        model.cp.minimize(model.amounts[objective])
        if ends_s is not None:
            solver.parameters.max_time_in_seconds = max(0.0, ends_s - time.perf_counter())
        status = solver.solve(model.cp)
        if status == cp_model.MODEL_INVALID:
            raise AssertionError(model.cp.validate())
        if bound is None and status != cp_model.INFEASIBLE:
            bound = max(least, round(solver.best_objective_bound)) if status != cp_model.UNKNOWN else least
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        proved.append(status == cp_model.OPTIMAL)
        counts = model.counts(solver)
        model.hold(objective, solver)
    if counts is None:
        # Nothing here is as good as what is known, or nothing fits.
        return None, bound
    step_ns, peak_bytes = table.totals(counts)
    status_name: Literal["OPTIMAL", "FEASIBLE"] = "OPTIMAL" if proved == [True] * len(objectives) else "FEASIBLE"
    return BlockSolution(table, counts, status_name, step_ns, peak_bytes, bound or least), bound


class _Model:
    """The CP-SAT model of a table; built once, minimised once per objective."""

    def __init__(self, table: BlockTable, budget_bytes: int | None) -> None:
        self.cp = cp_model.CpModel()
        self._table = table
        self._most_bytes = table.greatest_bytes if budget_bytes is None else min(budget_bytes, table.greatest_bytes)
        self._add_counts()
        self._add_manners()
        self._add_all_recomputed()
        self.amounts: dict[Amount, cp_model.LinearExprT] = {"time": self._add_time(), "memory": self._add_memory()}

    def _add_counts(self) -> None:
        self._counts: list[list[cp_model.IntVar]] = []
        for number, group in enumerate(self._table.groups):
            size = len(group.blocks)
            row = [self.cp.new_int_var(0, size, f"count_{number}_{k}") for k in range(len(group.costs))]
            self.cp.add(cp_model.LinearExpr.sum(row) == size)
            self._counts.append(row)

    def _add_manners(self) -> None:
        self._manners: dict[int, list[cp_model.IntVar]] = {}
        for group, counts in zip(self._table.groups, self._counts, strict=True):
            manners = range(len(group.manners))
            for block in group.blocks:
                self._manners[block] = [self.cp.new_bool_var(f"block_{block}_manner_{f}") for f in manners]
                self.cp.add_exactly_one(self._manners[block])
            for f in manners:
                of_manner = [x for x, cost in zip(counts, group.costs, strict=True) if cost.manner == f]
                blocks = [self._manners[block][f] for block in group.blocks]
                self.cp.add(cp_model.LinearExpr.sum(blocks) == cp_model.LinearExpr.sum(of_manner))
            for block, following in pairwise(group.blocks):
                for f in manners[1:]:
                    before, after = self._manners[block][:f], self._manners[following][:f]
                    self.cp.add(cp_model.LinearExpr.sum(before) >= cp_model.LinearExpr.sum(after))

    def _add_all_recomputed(self) -> None:
        """Recomputed blocks come first, so that all of a group are where the last one is."""
        self._all_recomputed = self.cp.new_bool_var("all_recomputed")
        plain = []
        for group in self._table.groups:
            if group.recomputable:
                last = zip(self._manners[group.blocks[-1]], group.manners, strict=True)
                plain.append(cp_model.LinearExpr.sum([y for y, manner in last if not manner.is_recomputed]))
                self.cp.add(_plus(self._all_recomputed, plain[-1]) <= 1)
        self.cp.add(_plus(self._all_recomputed, *plain) >= 1)

    def _add_time(self) -> cp_model.LinearExprT:
        table = self._table
        gathers = self._largest("longest_gather_ns", lambda cost: cost.forward_longest_ns)
        reductions = self._largest("longest_reduction_ns", lambda cost: cost.backward_longest_ns)
        forward = self.cp.new_int_var(0, table.most_ns, "forward_ns")
        backward = self.cp.new_int_var(0, table.most_ns, "backward_ns")
        self.cp.add(forward >= _plus(table.forward_ns[0], self._sum(lambda cost: cost.forward_ns)))
        self.cp.add(forward >= _plus(table.forward_ns[1], self._sum(lambda cost: cost.forward_bare_ns), gathers))
        self.cp.add(
            backward >= _plus(table.backward_ns[0], self._sum(lambda cost: cost.backward_ns - cost.recomputed_ns))
        )
        self.cp.add(backward >= _plus(table.backward_ns[1], self._sum(lambda cost: cost.backward_bare_ns), reductions))
        return _plus(forward, backward, self._sum(lambda cost: cost.alone_ns))

    def _add_memory(self) -> cp_model.LinearExprT:
        memory = self.cp.new_int_var(0, self._most_bytes, "memory_bytes")
        rest = _plus(self._table.always_bytes, self._sum(lambda cost: cost.rest_bytes))
        output = self._largest("output_bytes", lambda cost: cost.output_bytes)
        spread = self._largest("spread_bytes", lambda cost: cost.spread_bytes)
        self.cp.add(memory >= _plus(rest, self._sum(lambda cost: cost.update_bytes), spread))
        before: cp_model.LinearExprT = 0
        for number, stretch in enumerate(self._table.stretches):
            alive = self.cp.new_int_var(0, self._most_bytes, f"alive_{number}")
            self.cp.add(alive == _plus(before, self._held(stretch.change)))
            for moment in stretch.moments:
                once = [output] if stretch.is_backward else []
                self.cp.add(memory >= _plus(rest, alive, self._held(moment), *once))
            before = alive
        return memory

    def _sum(self, value: Callable[[BlockCost], int]) -> cp_model.LinearExprT:
        """Returns the sum of a cost over all blocks."""
        variables: list[cp_model.IntVar] = []
        factors: list[int] = []
        for group, counts in zip(self._table.groups, self._counts, strict=True):
            variables += counts
            factors += [value(cost) for cost in group.costs]
        return cp_model.LinearExpr.weighted_sum(variables, factors)

    def _largest(self, name: str, value: Callable[[BlockCost], int]) -> cp_model.IntVar:
        """Returns a variable that is at least the cost of every block."""
        greatest = max((value(cost) for group in self._table.groups for cost in group.costs), default=0)
        largest = self.cp.new_int_var(0, greatest, name)
        for number, (group, counts) in enumerate(zip(self._table.groups, self._counts, strict=True)):
            for each in sorted({value(cost) for cost in group.costs} - {0}):
                used = self.cp.new_bool_var(f"{name}_{number}_{each}")
                as_large = [x for x, cost in zip(counts, group.costs, strict=True) if value(cost) >= each]
                self.cp.add(len(group.blocks) * used >= cp_model.LinearExpr.sum(as_large))
                self.cp.add(largest >= each * used)
        return largest

    def _held(self, held: Held) -> cp_model.LinearExprT:
        variables = [y for term in held.terms for y in self._manners[term.block]]
        factors = [num_bytes for term in held.terms for num_bytes in term.bytes_by_manner]
        together = cp_model.LinearExpr.weighted_sum(
            [*variables, self._all_recomputed], [*factors, held.all_recomputed_bytes]
        )
        return _plus(together, held.constant_bytes)

    def hold(self, objective: Amount, solver: cp_model.CpSolver) -> None:
        """Keeps an objective at its value, and starts the next solve from this one's answer."""
        self.cp.add(self.amounts[objective] <= round(solver.objective_value))
        self.cp.clear_hints()  # type: ignore[no-untyped-call]
        for row in (*self._counts, *self._manners.values()):
            for variable in row:
                self.cp.add_hint(variable, solver.value(variable))

    def counts(self, solver: cp_model.CpSolver) -> Counts:
        """Returns the chosen counts."""
        return tuple(tuple(solver.value(x) for x in row) for row in self._counts)


def _plus(*parts: cp_model.LinearExprT) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.sum(parts)
