"""Laws of plans on machines: better links or more memory never slow the chosen step."""

from __future__ import annotations

from dataclasses import replace

from formula_cases import workloads
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.degrees import strategies
from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.strategy import StepShape
from costmodels.workload import Workload
from planner.cost_table import CostTable
from planner.estimate import estimate
from planner.machine import Machine
from planner.solve import solve

EXAMPLES = settings(max_examples=25, deadline=None)
SHAPES = (StepShape(4, 1, 2), StepShape(4, 2, 1))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    bandwidths = [draw(st.integers(1, 1000)) * 1e3 for _ in range(2)]
    return Machine(
        network=Network(tuple(NetworkLevel(2, bandwidth, 1e-6) for bandwidth in bandwidths)),
        speed=DeviceSpeed(draw(st.integers(1, 1000)) * 1e5, 1e7, 1e-6, draw(st.sampled_from([0.0, 0.5, 1.0]))),
        peak_flop_per_s=1e9,
        usable_bytes=10**9,
        ranks_per_node=2,
    )


def table(workload: Workload, machine: Machine, budget_bytes: int = 10**12) -> CostTable:
    return estimate(workload, FSDP, machine, strategies((2, 2), relaxed=False), SHAPES, "auto", budget_bytes)


@EXAMPLES
@given(workloads(), machines(), st.sampled_from([0, 1]), st.floats(1, 100))
def test_more_bandwidth_is_never_slower(workload: Workload, machine: Machine, level: int, factor: float) -> None:
    levels = list(machine.network.levels)
    levels[level] = replace(levels[level], unit_bytes_per_s=levels[level].unit_bytes_per_s * factor)
    faster = replace(machine, network=Network(tuple(levels)))
    before, after = solve(table(workload, machine)), solve(table(workload, faster))
    assert before is not None
    assert after is not None
    assert after.objective <= before.objective


@EXAMPLES
@given(workloads(), machines(), st.integers(0, 4))
def test_a_plan_is_the_fastest_that_fits_by_enumeration(workload: Workload, machine: Machine, quarter: int) -> None:
    costs = table(workload, machine)
    peaks = sorted(option.peak_bytes(r) for option in costs.options for r in option.recomputations())
    budget_bytes = peaks[quarter * (len(peaks) - 1) // 4]
    solution = solve(costs, budget_bytes=budget_bytes)
    assert solution is not None
    assert solution.objective == min(
        option.step_ns(recomputed)
        for option in costs.options
        for recomputed in option.recomputations()
        if option.peak_bytes(recomputed) <= budget_bytes
    )
