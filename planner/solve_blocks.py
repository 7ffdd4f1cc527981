"""Chooses how many blocks of each class have which strategy, by CP-SAT, with a proof.

Sets: groups c of n_c equal blocks, degrees p, g, o and s, R (gradients are reduced to less than all in each
micro-batch, g > 1, once in a step, or never, o = 1), manners f (gathered anew, kept or whole, with an R), kinds k of
what is held, blocks j of a group in order of execution, segments t of a micro-batch and the moments i in them. One
model for each micro-batch.

Variables
    x_cpoR in 0..n_c     blocks of group c with (p, o) and R                              (`_add_counts`)
    v_cPgo in 0..n_c     blocks of group c with (g, o), of all p of P, which pad alike    (`_add_counts`)
    w_cpsR in 0..n_c     blocks of group c with (p, s) and R                              (`_add_counts`)
    h_cpgo in 0..n_c     blocks of group c with (p, g, o), where not all of an o nest     (`_add_pairs`)
    q_c in 0..n_c        blocks of group c that are recomputed                            (`_add_counts`)
    y_jf in {0, 1}       block j has manner f or one before it                            (`_add_manners`)
    z_j in {0, 1}        block j is recomputed                                            (`_add_recomputed`)
    r in {0, 1}          every block that can be recomputed is                            (`_add_recomputed`)
    u_ca in {0, 1}       some block of c has a or more of something that counts once      (`_largest`)
    T_f, T_b >= 0        nanoseconds of forward, and of backward with its boundary        (`_add_time`)
    A_t >= 0             bytes alive when segment t begins                                (`_add_memory`)
    l_ck >= 0            the most that a block of c holds apart of kind k                 (`_most_apart`)
    m >= 0               bytes of device memory at the step's peak                        (`_add_memory`)

Constraints
    sum x_c = n_c,  sum_{p of P} x_cpoR = sum_{g of R} v_cPgo,  sum_o x_cpoR = sum_s w_cpsR       (`_add_counts`)
    sum_{g of R} h_cpgo = x_cpoR,  sum_{p of P} h_cpgo = v_cPgo                             (`_add_pairs`)
    sum_j y_jf = sum of w_cpsR over manners up to f,  y_jf <= y_j,f+1                     (`_add_manners`)
    y_jf >= y_if                                     for each j and the next i of c       (`_add_manners`)
    sum_j z_j = q_c,  z_j >= z_i                     for each j and the next i of c       (`_add_recomputed`)
    r = min over blocks j that can be recomputed of z_j                                   (`_add_recomputed`)
    T >= a_0 + sums of a x, a v, a w, a q + longest  for the bounds of each phase         (`_add_time`)
    largest >= a u_ca,  n_c u_ca >= sum of those x (or v) that have a or more             (`_largest`)
    largest >= sum of a x (or a v), where n_c = 1                                         (`_largest`)
    A_t = A_{t-1} + d_t + sum_jf d_tjf y_jf + sum_j d_tj z_j + d'_t r + sum_ck d_tck l_ck   (`_add_memory`)
    m >= rest + A_t + the same of moment i                                                (`_add_memory`)
    m >= rest + that of moments after the last segment                                    (`_add_memory`)
    m >= rest + sum_cgo slices_cgo v_cPgo + that of the update,  m <= budget              (`_add_memory`)

where rest is the sum of model states over x and v.

Objectives, the second minimised with the first held at its optimum:
T_f + T_b + optimizers, then m; or the other way round. See `planner.block_table` for which block has which of the
chosen strategies, and `planner.solve` for why OR-Tools' presolve is off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from ortools.sat.python import cp_model

from costmodels.compute import Computed
from costmodels.fsdp.holds import Kind, Manner, Reducing, reducing_of
from costmodels.strategy import Strategy
from planner.block_table import (
    REDUCINGS,
    BlockGroup,
    BlockTable,
    Choice,
    GradCost,
    GroupChoice,
    Held,
    ParamCost,
    SecondaryCost,
)
from planner.block_totals import block_totals
from planner.cost_table import Amount
from planner.errors import UnsolvedError

Objectives = tuple[Amount, Amount]
MAX_DETERMINISTIC_TIME = 60.0
"""CP-SAT's own measure of work, about seconds, for the first objective of each micro-batch."""
MAX_DETERMINISTIC_TIME_OF_TIES = 0.1
"""The same for the second objective, which only breaks ties."""


@dataclass(frozen=True, slots=True)
class BlockSolution:
    """The best choice of all micro-batches, and its proof."""

    table: BlockTable
    """Of its micro-batch."""
    choice: Choice
    status: Literal["OPTIMAL", "FEASIBLE"]
    """OPTIMAL: the first objective was proved; FEASIBLE: a limit of work or seconds came first, or it was enough."""
    step_ns: int
    peak_bytes: int
    bound: int
    """No choice has less of the first objective."""


def solve_blocks(
    tables: Sequence[BlockTable],
    budget_bytes: int | None,
    objectives: Objectives = ("time", "memory"),
    time_limit_s: float | None = None,
    gap: float = 0.0,
    known: BlockSolution | None = None,
) -> BlockSolution | None:
    """Returns the best choice within the budget over all micro-batches, or None when no choice fits.

    Args:
        tables: The costs, one table for each micro-batch; of equal choices that of the first table is taken.
        budget_bytes: Bytes of device memory; None: as many as any choice needs.
        objectives: What to minimise, the most important first.
        time_limit_s: Seconds for all, by the clock. None: only the limit of work, which stops at the same choice in
            every run.
        gap: The first choice that is proved to be within this part of the best is enough; of equal ones any.
        known: A choice from these costs that fits, which the answer is no worse than: it shortens the proof.

    Raises:
        UnsolvedError: The limit came before any choice that fits was found.
    """
    ends_s = None if time_limit_s is None else time.perf_counter() + time_limit_s
    best = known
    bounds: list[int] = []
    for table in sorted(tables, key=_compute_ns):
        found, bound = _solve(table, budget_bytes, objectives, best, ends_s, gap)
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
    proved = bound == _figures(best, objectives)[0]
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
    gap: float,
) -> tuple[BlockSolution | None, int | None]:
    """Returns the best of one micro-batch that is no worse than `best`, and a bound unless there is none at all."""
    least = _compute_ns(table) if objectives[0] == "time" else 0
    if best is not None and least > _figures(best, objectives)[0]:
        return None, least
    model = _Model(table, budget_bytes)
    solver = _solver()
    solver.parameters.relative_gap_limit = gap
    if best is not None:
        model.cp.add(model.amounts[objectives[0]] <= _figures(best, objectives)[0])
    bound: int | None = None
    choice: Choice | None = None
    for objective in objectives[:1] if gap else objectives:
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
        choice = model.choice(solver)
        model.hold(objective, solver)
        solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_TIME_OF_TIES
    if choice is None or bound is None:
        # Nothing here is as good as what is known, or nothing fits, or nothing was found in time.
        return None, bound
    step_ns, peak_bytes = block_totals(table, choice)
    return BlockSolution(table, choice, "FEASIBLE", step_ns, peak_bytes, bound), bound


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.cp_model_presolve = False
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    # All of the model is linear, and its relaxation tight: what helps is that it is solved often, not cut.
    solver.parameters.linearization_level = 2
    solver.parameters.cut_level = 0
    solver.parameters.use_objective_lb_search = True
    solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_TIME
    return solver


_Sums = dict[tuple[int | Reducing, ...], list[cp_model.IntVar]]
"""Variables by what they have in common."""


class _Columns(NamedTuple):
    """The counts of one group; those of (p, o) and (p, s) apart by whether g > 1."""

    params: dict[tuple[int, Reducing], cp_model.IntVar]
    grads: list[cp_model.IntVar]
    secondaries: dict[tuple[int, Reducing], cp_model.IntVar]
    pairs: list[cp_model.IntVar]

    def every(self) -> Iterator[cp_model.IntVar]:
        """Yields all variables."""
        yield from (*self.params.values(), *self.grads, *self.secondaries.values(), *self.pairs)

    def by_optim(self, group: BlockGroup) -> _Sums:
        """Returns the counts of (p, o) by o, and by which p pad alike."""
        found: _Sums = {}
        alike = _alike(group)
        for (k, reducing), x in self.params.items():
            cost = group.params[k]
            found.setdefault((*alike[cost.param_degree, cost.optim_degree], reducing), []).append(x)
        return found

    def grads_by_optim(self, group: BlockGroup) -> _Sums:
        """Returns the counts of (g, o) by the same."""
        found: _Sums = {}
        for each, v in zip(group.grads, self.grads, strict=True):
            found.setdefault((each.optim_degree, each.param_degrees[0], each.reducing), []).append(v)
        return found

    def by_param(self, group: BlockGroup) -> _Sums:
        """Returns the counts of (p, o) by p."""
        found: _Sums = {}
        for (k, reducing), x in self.params.items():
            found.setdefault((group.params[k].param_degree, reducing), []).append(x)
        return found

    def secondaries_by_param(self, group: BlockGroup) -> _Sums:
        """Returns the counts of (p, s) by p."""
        found: _Sums = {}
        for (k, reducing), w in self.secondaries.items():
            found.setdefault((group.secondaries[k].param_degree, reducing), []).append(w)
        return found


def _alike(group: BlockGroup) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns for each (p, o) its o and the first p that pads like it."""
    return {
        (p, each.optim_degree): (each.optim_degree, each.param_degrees[0])
        for each in group.grads
        for p in each.param_degrees
    }


def _nothing(cost: object) -> int:
    del cost
    return 0


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
        self._columns: list[_Columns] = []
        for number, group in enumerate(self._table.groups):

            def count(name: str, most: int = len(group.blocks), number: int = number) -> cp_model.IntVar:
                return self.cp.new_int_var(0, most, f"{name}_{number}")

            columns = _Columns(
                {
                    (k, reducing): count(f"param_{k}_{reducing}")
                    for k, cost in enumerate(group.params)
                    for reducing in (REDUCINGS[:1] if cost.optim_degree == 1 else REDUCINGS[1:])
                },
                [count(f"grad_{k}") for k in range(len(group.grads))],
                {
                    (k, reducing): count(f"secondary_{k}_{reducing}")
                    for k, cost in enumerate(group.secondaries)
                    for reducing in (REDUCINGS if cost.param_degree == 1 else REDUCINGS[1:])
                },
                [count(f"pair_{k}") for k in range(len(group.pairs))],
            )
            self._columns.append(columns)
            self.cp.add(_plus(*columns.params.values()) == len(group.blocks))
            self._link(columns.by_optim(group), columns.grads_by_optim(group))
            self._link(columns.by_param(group), columns.secondaries_by_param(group))
            self._add_pairs(group, columns)

    def _link(self, these: _Sums, others: _Sums) -> None:
        for key in dict.fromkeys((*these, *others)):
            self.cp.add(_plus(*these.get(key, ())) == _plus(*others.get(key, ())))

    def _add_pairs(self, group: BlockGroup, columns: _Columns) -> None:
        if not group.pairs:
            return
        of_params: _Sums = {}
        of_grads: _Sums = {}
        alike = _alike(group)
        for (p, g, o), number in zip(group.pairs, columns.pairs, strict=True):
            of_params.setdefault((p, o, reducing_of(g, o)), []).append(number)
            of_grads.setdefault((g, *alike[p, o]), []).append(number)
        self._link(
            of_params,
            {
                (group.params[k].param_degree, group.params[k].optim_degree, reducing): [x]
                for (k, reducing), x in columns.params.items()
            },
        )
        self._link(
            of_grads,
            {
                (each.grad_degree, each.optim_degree, each.param_degrees[0]): [v]
                for each, v in zip(group.grads, columns.grads, strict=True)
            },
        )

    def _add_manners(self) -> None:
        self._manners: dict[int, list[cp_model.IntVar]] = {}
        for group, columns in zip(self._table.groups, self._columns, strict=True):
            limits = range(len(group.manners) - 1)
            for block in group.blocks:
                row = [self.cp.new_bool_var(f"block_{block}_manner_{f}") for f in limits]
                self._manners[block] = row
                for lower, higher in pairwise(row):
                    self.cp.add_implication(lower, higher)
            for f in limits:
                first = group.manners[: f + 1]
                have = [
                    w
                    for (k, reducing), w in columns.secondaries.items()
                    if Manner(group.secondaries[k].gathered, reducing) in first
                ]
                self.cp.add(_plus(*(self._manners[block][f] for block in group.blocks)) == _plus(*have))
            for block, following in pairwise(group.blocks):
                for before, after in zip(self._manners[block], self._manners[following], strict=True):
                    self.cp.add_implication(after, before)

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

        gathers = (
            self._sum(param=lambda p: p.forward.bare_ns),
            self._largest("gather", param=lambda p: p.forward.longest_ns),
        )
        reductions = (
            self._sum(grad=lambda g: g.reduced.bare_ns, secondary=lambda s: s.backward.bare_ns),
            self._largest("reduction", grad=lambda g: g.reduced.longest_ns),
        )
        spread = self._sum(param=lambda p: p.spread.duration_ns)
        boundary = self._sum(grad=lambda g: g.boundary.duration_ns)
        forward = self._phase(
            "forward",
            (
                (table.forward.duration_ns - table.forward.overlappable_ns) * times,
                self._sum(param=lambda p: p.forward.duration_ns),
                spread,
            ),
            (
                table.forward.duration_ns * times,
                *gathers,
                self._sum(param=lambda p: p.spread.bare_ns),
                self._largest("spread", param=lambda p: p.spread.longest_ns),
            ),
            (table.forward.duration_ns * times - table.forward.overlappable_ns, *gathers, spread),
        )
        backward = self._phase(
            "backward",
            (
                (table.backward.duration_ns - table.backward.overlappable_ns) * times,
                recomputed(lambda each: (each.duration_ns - each.overlappable_ns) * times),
                self._sum(grad=lambda g: g.reduced.duration_ns, secondary=lambda s: s.backward.duration_ns),
                boundary,
            ),
            (
                table.backward.duration_ns * times,
                recomputed(lambda each: each.duration_ns * times),
                *reductions,
                self._sum(grad=lambda g: g.boundary.bare_ns),
                self._largest("boundary", grad=lambda g: g.boundary.longest_ns),
            ),
            (
                table.backward.duration_ns * times - table.backward.overlappable_ns,
                recomputed(lambda each: each.duration_ns * times - each.overlappable_ns),
                *reductions,
                boundary,
            ),
        )
        return _plus(forward, backward, self._sum(param=lambda p: p.optimizer_ns), table.control_ns)

    def _phase(self, name: str, *bounds: tuple[cp_model.LinearExprT, ...]) -> cp_model.IntVar:
        """Returns a variable that is at least each of the sums."""
        phase = self.cp.new_int_var(0, _most_ns(self._table), f"{name}_ns")
        for bound in bounds:
            self.cp.add(phase >= _plus(*bound))
        return phase

    def _add_memory(self) -> cp_model.LinearExprT:
        memory = self.cp.new_int_var(0, self._most_bytes, "memory_bytes")
        rest = self.cp.new_int_var(0, self._most_bytes, "rest_bytes")
        states = self._sum(lambda p: p.rest_bytes, lambda g: g.rest_bytes)
        self.cp.add(rest == _plus(self._table.always_bytes, states))
        self._apart: dict[tuple[int, Kind], cp_model.LinearExprT] = {}
        self.cp.add(memory >= _plus(rest, self._sum(grad=lambda g: g.update_bytes), self._held(self._table.updating)))
        for moment in self._table.closing:
            self.cp.add(memory >= _plus(rest, self._held(moment)))
        before: cp_model.LinearExprT = 0
        for number, stretch in enumerate(self._table.stretches):
            alive = self.cp.new_int_var(0, self._most_bytes, f"alive_{number}")
            self.cp.add(alive == _plus(before, self._held(stretch.change)))
            for moment in stretch.moments:
                self.cp.add(memory >= _plus(rest, alive, self._held(moment)))
            before = alive
        return memory

    def _most_apart(self, group: int, kind: Kind) -> cp_model.LinearExprT:
        """Returns a variable that is at least what each block of a group holds apart of a kind."""

        def bytes_of(cost: ParamCost | GradCost | SecondaryCost) -> int:
            return dict(cost.apart).get(kind, 0)

        if (group, kind) not in self._apart:
            number = next(place for place, each in enumerate(self._table.groups) if each.blocks[0] == group)
            self._apart[group, kind] = self._largest(
                f"{kind}_{group}", bytes_of, bytes_of, bytes_of, groups=range(number, number + 1)
            )
        return self._apart[group, kind]

    def _sum(
        self,
        param: Callable[[ParamCost], int] = _nothing,
        grad: Callable[[GradCost], int] = _nothing,
        secondary: Callable[[SecondaryCost], int] = _nothing,
    ) -> cp_model.LinearExprT:
        """Returns the sum of a cost over all blocks."""
        variables: list[cp_model.IntVar] = []
        factors: list[int] = []
        for group, columns in zip(self._table.groups, self._columns, strict=True):
            costs = (
                *((x, param(group.params[k])) for (k, _), x in columns.params.items()),
                *((v, grad(each)) for v, each in zip(columns.grads, group.grads, strict=True)),
                *((w, secondary(group.secondaries[k])) for (k, _), w in columns.secondaries.items()),
            )
            variables += [variable for variable, factor in costs if factor]
            factors += [factor for _, factor in costs if factor]
        return cp_model.LinearExpr.weighted_sum(variables, factors)

    def _largest(
        self,
        name: str,
        param: Callable[[ParamCost], int] = _nothing,
        grad: Callable[[GradCost], int] = _nothing,
        secondary: Callable[[SecondaryCost], int] = _nothing,
        groups: range | None = None,
    ) -> cp_model.LinearExprT:
        """Returns a variable that is at least the cost of every block of some groups; each block has one such cost."""
        costs = {
            number: [
                *(
                    (x, param(self._table.groups[number].params[k]))
                    for (k, _), x in self._columns[number].params.items()
                ),
                *zip(self._columns[number].grads, map(grad, self._table.groups[number].grads), strict=True),
                *(
                    (w, secondary(self._table.groups[number].secondaries[k]))
                    for (k, _), w in self._columns[number].secondaries.items()
                ),
            ]
            for number in groups or range(len(self._columns))
        }
        most = max(cost for row in costs.values() for _, cost in row)
        if most == 0:
            return 0
        largest = self.cp.new_int_var(0, most, name)
        for number, row in costs.items():
            if len(self._table.groups[number].blocks) == 1:
                self.cp.add(largest >= cp_model.LinearExpr.weighted_sum(*zip(*row, strict=True)))
                continue
            for each in sorted({cost for _, cost in row} - {0}):
                used = self.cp.new_bool_var(f"{name}_{number}_{each}")
                as_large = [variable for variable, cost in row if cost >= each]
                self.cp.add(len(self._table.groups[number].blocks) * used >= _plus(*as_large))
                self.cp.add(largest >= each * used)
        return largest

    def _held(self, held: Held) -> cp_model.LinearExprT:
        variables: list[cp_model.IntVar] = [self._all_recomputed]
        factors = [held.if_all_recomputed]
        constant = held.constant
        for term in held.terms:
            constant += term.by_manner[-1]
            for y, (lower, higher) in zip(self._manners[term.block], pairwise(term.by_manner), strict=True):
                if lower != higher:
                    variables.append(y)
                    factors.append(lower - higher)
            if term.if_recomputed:
                variables.append(self._recomputed[term.block])
                factors.append(term.if_recomputed)
        apart = (times * self._most_apart(group, kind) for group, kind, times in held.apart)
        return _plus(cp_model.LinearExpr.weighted_sum(variables, factors), constant, *apart)

    def hold(self, objective: Amount, solver: cp_model.CpSolver) -> None:
        """Keeps an objective at its value, and starts the next solve from this one's answer."""
        self.cp.add(self.amounts[objective] <= round(solver.objective_value))
        self.cp.clear_hints()  # type: ignore[no-untyped-call]
        rows = (*self._manners.values(), self._num_recomputed, self._recomputed.values())
        columns = (each.every() for each in self._columns)
        for variable in (variable for row in (*rows, *columns) for variable in row):
            self.cp.add_hint(variable, solver.value(variable))

    def choice(self, solver: cp_model.CpSolver) -> Choice:
        """Returns what is chosen for each group."""
        parts = zip(self._table.groups, self._columns, self._num_recomputed, strict=True)
        return tuple(
            GroupChoice(_paired(group, columns, solver), solver.value(number)) for group, columns, number in parts
        )


def _paired(group: BlockGroup, columns: _Columns, solver: cp_model.CpSolver) -> tuple[tuple[Strategy, int], ...]:
    """Returns whole strategies: which of the parts go together makes no difference where the degrees nest."""
    grads: dict[tuple[int, int, Reducing], list[int]] = {}
    for each, v in zip(group.grads, columns.grads, strict=True):
        key = (each.optim_degree, each.param_degrees[0], each.reducing)
        grads.setdefault(key, []).extend([each.grad_degree] * solver.value(v))
    alike = _alike(group)
    secondaries: dict[tuple[int, Reducing], list[int]] = {}
    for (k, reducing), w in columns.secondaries.items():
        degree = group.secondaries[k].param_degree
        secondaries.setdefault((degree, reducing), []).extend([group.secondaries[k].secondary_degree] * solver.value(w))
    triples = [pair for pair, h in zip(group.pairs, columns.pairs, strict=True) for _ in range(solver.value(h))]
    if not group.pairs:
        for (k, reducing), x in columns.params.items():
            p, o = group.params[k].param_degree, group.params[k].optim_degree
            triples += [(p, grads[*alike[p, o], reducing].pop(0), o) for _ in range(solver.value(x))]
    found: dict[Strategy, int] = {}
    for p, g, o in triples:
        strategy = Strategy(p, secondaries[p, reducing_of(g, o)].pop(0), g, o)
        found[strategy] = found.get(strategy, 0) + 1
    return tuple(found.items())


def _most_ns(table: BlockTable) -> int:
    """Returns nanoseconds that no phase exceeds."""
    sent_ns = sum(
        len(group.blocks)
        * (
            max(each.forward.duration_ns + each.spread.duration_ns for each in group.params)
            + max(each.reduced.duration_ns + each.boundary.duration_ns for each in group.grads)
            + max(each.backward.duration_ns for each in group.secondaries)
            + group.again.duration_ns * table.shape.num_micro_batches
        )
        for group in table.groups
    )
    return sent_ns + _compute_ns(table)


def _most_bytes(table: BlockTable) -> int:
    """Returns bytes that no peak exceeds."""
    states_bytes = sum(
        len(group.blocks)
        * (
            max(each.rest_bytes for each in group.params)
            + max(each.rest_bytes + each.update_bytes for each in group.grads)
        )
        for group in table.groups
    )
    apart = {group.blocks[0]: _most_of_kinds(group) for group in table.groups}
    alive_bytes = most_alive_bytes = max(_most_held(held, apart) for held in (table.updating, *table.closing))
    for stretch in table.stretches:
        alive_bytes += _most_held(stretch.change, apart)
        moments_bytes = (alive_bytes + _most_held(moment, apart) for moment in stretch.moments)
        most_alive_bytes = max(most_alive_bytes, *moments_bytes)
    return table.always_bytes + states_bytes + most_alive_bytes


def _most_of_kinds(group: BlockGroup) -> dict[Kind, int]:
    most: dict[Kind, int] = {}
    every = [each.apart for each in group.params] + [each.apart for each in group.grads]
    every += [each.apart for each in group.secondaries]
    for apart in every:
        for kind, num_bytes in apart:
            most[kind] = max(num_bytes, most.get(kind, 0))
    return most


def _most_held(held: Held, apart: Mapping[int, Mapping[Kind, int]]) -> int:
    of_blocks = sum(max(term.by_manner) + max(0, term.if_recomputed) for term in held.terms)
    of_groups = sum(max(0, times) * apart[group].get(kind, 0) for group, kind, times in held.apart)
    return held.constant + of_blocks + of_groups + max(0, held.if_all_recomputed)


def _plus(*parts: cp_model.LinearExprT) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.sum(parts)
