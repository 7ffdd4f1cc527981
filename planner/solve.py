"""Chooses from a cost table by CP-SAT, with a proof.

Sets: options k (a strategy with its micro-batch), groups c of classes that can be recomputed, phases f of the step. A
phase has bounds (a, a_c), memory has moments (b, b_c); both are numbered by i within an option, absent ones are zero.

Variables
    z_k in {0, 1}    option k is chosen                                             (`_add_choice`)
    x_kc in {0, 1}   option k is chosen with group c recomputed                     (`_add_choice`)
    t_f >= 0         nanoseconds of phase f                                         (`_add_time`)
    m >= 0           bytes of device memory at the step's peak                      (`_add_memory`)

Constraints
    sum_k z_k = 1                                                                   (`_add_choice`)
    x_kc <= z_k, and x_kc = z_k where the option always recomputes group c          (`_add_choice`)
    t_f >= sum_k (a_kfi z_k + sum_c a_kfic x_kc)    for each phase f and bound i    (`_add_time`)
    m >= sum_k (b_ki z_k + sum_c b_kic x_kc)        for each moment i               (`_add_memory`)
    m <= budget                                                                     (`_add_memory`)

Objectives, each minimised with the earlier ones held at their optimum              (`solve`)
    time     sum_f t_f
    memory   m
    order    position of (k, x) in the table's declared order

The bounds of a phase are max(compute + (1 - phi) communication, communication + (1 - phi) compute), so at the optimum
t_f is exactly that maximum. An option whose memory exceeds the budget whatever is recomputed has no variables: this
changes no optimum and keeps the numbers in the model small. Sums over the one chosen option, rather than constraints
that a literal enforces, make the linear relaxation tight.

OR-Tools 9.15 calls wrong answers optimal where a Boolean's coefficient is beyond 2^31, and bytes are: its presolve
overflows (google/or-tools issue 5293), and so does its detection of "greater than at least one of" among enforced
constraints. So presolve is off here and no linear constraint is enforced by a literal; the property tests compare
thousands of such tables with brute force.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from ortools.sat.python import cp_model

from planner.cost_table import Amount, Cost, CostTable, Option, Recomputed
from planner.errors import UnsolvedError

Objective = Amount | Literal["order"]
Objectives = tuple[Amount, *tuple[Objective, ...]]
FASTEST: Objectives = ("time", "memory", "order")
SMALLEST: Objectives = ("memory", "time", "order")
MAX_DETERMINISTIC_TIME = 60.0
"""CP-SAT's own measure of work, about seconds; unlike the clock, it stops every run at the same point."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The best choice and its proof."""

    option: Option
    recomputed: Recomputed
    status: Literal["OPTIMAL", "FEASIBLE"]
    """OPTIMAL: every objective was proved; FEASIBLE: a limit of work or seconds came first."""
    objective: int
    """The first objective's value: ns for time, bytes for memory."""
    bound: int
    """No choice has a smaller first objective."""
    num_strategies: int
    wall_s: float

    @property
    def gap(self) -> float:
        """(objective - bound) / objective; 0 when proved optimal."""
        return (self.objective - self.bound) / max(self.objective, 1)


def solve(
    table: CostTable,
    objectives: Objectives = FASTEST,
    budget_bytes: int | None = None,
    time_limit_s: float | None = None,
) -> Solution | None:
    """Returns the table's best choice within the budget, or None when no choice fits.

    Args:
        table: The options with their costs.
        objectives: What to minimise, the most important first.
        budget_bytes: Bytes of device memory; the table's own budget when None.
        time_limit_s: Seconds for all objectives together, by the clock. None: only the limit of work, which stops at
            the same choice in every run.

    Raises:
        UnsolvedError: The limit came before any choice that fits was found.
    """
    started_s = time.perf_counter()
    budget_bytes = table.budget_bytes if budget_bytes is None else budget_bytes
    model = _Model(table, budget_bytes)
    solver = _solver()
    found: tuple[Option, Recomputed] | None = None
    bounds, statuses = [], []
    for objective in objectives:
        expression = model.objective(objective)
        model.cp.minimize(expression)
        if time_limit_s is not None:
            solver.parameters.max_time_in_seconds = max(0.0, started_s + time_limit_s - time.perf_counter())
        statuses.append(solver.solve(model.cp))
        if statuses[-1] == cp_model.INFEASIBLE:
            return None
        if statuses[-1] not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        found = model.choice(solver)
        bounds.append(round(solver.best_objective_bound))
        model.hold(expression, solver)
    if statuses[0] != cp_model.OPTIMAL:
        known = [choice for choice in (found, table.corner(objectives[0], budget_bytes)) if choice is not None]
        found = min(known, key=lambda choice: choice[0].amount(objectives[0], choice[1]), default=None)
        bounds[:1] = [max([*bounds[:1], min(option.least(objectives[0]) for option in table.options)])]
    if found is None:
        raise UnsolvedError(_unsolved(table.num_strategies, time_limit_s))
    option, recomputed = found
    return Solution(
        option=option,
        recomputed=recomputed,
        status="OPTIMAL" if all(status == cp_model.OPTIMAL for status in statuses) else "FEASIBLE",
        objective=option.amount(objectives[0], recomputed),
        bound=bounds[0],
        num_strategies=table.num_strategies,
        wall_s=time.perf_counter() - started_s,
    )


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.cp_model_presolve = False
    solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_TIME
    return solver


def _unsolved(num_strategies: int, time_limit_s: float | None) -> str:
    limit = f"the limit of work of {MAX_DETERMINISTIC_TIME:g}" if time_limit_s is None else f"{time_limit_s:g} s"
    more = "leave --solve-time-limit out, or give more seconds; or " if time_limit_s is not None else ""
    return (
        f"none of {num_strategies:,} combinations was found to fit within {limit}, and whether one does is "
        f"not known; {more}choose from fewer, by --micro-batch-size or --recompute"
    )


class _Model:
    """The CP-SAT model of a table; built once, minimised once per objective."""

    def __init__(self, table: CostTable, budget_bytes: int) -> None:
        self.cp = cp_model.CpModel()
        self._numbered = [
            (number, option)
            for number, option in enumerate(table.options)
            if all(cost.least <= budget_bytes for cost in option.memory_bytes)
        ]
        self._options = [option for _, option in self._numbered]
        self._num_groups = len(table.groups)
        self._add_choice()
        self._add_time()
        self._add_memory(budget_bytes)

    def _add_choice(self) -> None:
        self._chosen = [self.cp.new_bool_var(f"option_{number}") for number, _ in self._numbered]
        self.cp.add_exactly_one(self._chosen)
        self._recomputed: list[list[cp_model.IntVar]] = []
        for literal, (number, option) in zip(self._chosen, self._numbered, strict=True):
            variables = []
            for position, values in enumerate(option.may_recompute):
                variable = self.cp.new_bool_var(f"option_{number}_recompute_{position}")
                self.cp.add_implication(variable, literal)
                if values == (False,):
                    self.cp.add(variable == 0)
                elif values == (True,):
                    self.cp.add_implication(literal, variable)
                variables.append(variable)
            self._recomputed.append(variables)

    def _add_time(self) -> None:
        phases = list(zip_longest(*(option.phases_ns for option in self._options), fillvalue=()))
        longest_ns = [max((bound.greatest for bounds in phase for bound in bounds), default=0) for phase in phases]
        self._phases = [self.cp.new_int_var(0, max(0, ns), f"phase_{f}_ns") for f, ns in enumerate(longest_ns)]
        for variable, phase in zip(self._phases, phases, strict=True):
            for bounds in zip_longest(*phase):
                self.cp.add(variable >= self._of_chosen(bounds))

    def _add_memory(self, budget_bytes: int) -> None:
        self._memory = self.cp.new_int_var(0, budget_bytes, "memory_bytes")
        for moments in zip_longest(*(option.memory_bytes for option in self._options)):
            self.cp.add(self._memory >= self._of_chosen(moments))

    def _of_chosen(self, costs: Sequence[Cost | None]) -> cp_model.LinearExprT:
        """Returns the cost of the chosen option; one entry per option, None for zero."""
        variables: list[cp_model.IntVar] = []
        factors: list[int] = []
        for literal, recomputed, cost in zip(self._chosen, self._recomputed, costs, strict=True):
            if cost is not None:
                variables += [literal, *recomputed]
                factors += [cost.constant, *cost.by_group]
        return cp_model.LinearExpr.weighted_sum(variables, factors)

    def objective(self, objective: Objective) -> cp_model.LinearExprT:
        """Returns the expression to minimise."""
        if objective == "time":
            return cp_model.LinearExpr.sum(self._phases)
        if objective == "memory":
            return self._memory
        # Within an option the first group is the most significant, as in `Option.recomputations`.
        places = [
            Cost(number << self._num_groups, tuple(1 << place for place in reversed(range(self._num_groups))))
            for number, _ in self._numbered
        ]
        return self._of_chosen(places)

    def hold(self, expression: cp_model.LinearExprT, solver: cp_model.CpSolver) -> None:
        """Keeps the expression at its value, and starts the next solve from this one's answer."""
        self.cp.add(expression <= round(solver.objective_value))
        self.cp.clear_hints()  # type: ignore[no-untyped-call]
        booleans = (variable for variables in (self._chosen, *self._recomputed) for variable in variables)
        for variable in (*booleans, *self._phases, self._memory):
            self.cp.add_hint(variable, solver.value(variable))

    def choice(self, solver: cp_model.CpSolver) -> tuple[Option, Recomputed]:
        """Returns the chosen option and what it recomputes."""
        for literal, variables, option in zip(self._chosen, self._recomputed, self._options, strict=True):
            if solver.boolean_value(literal):
                return option, tuple(solver.boolean_value(variable) for variable in variables)
        raise AssertionError("exactly one option is chosen")
