"""Random cost tables: few options of small whole costs, so that ties are common."""

from __future__ import annotations

from hypothesis import strategies as st

from costmodels.strategy import StepShape, Strategy
from planner.cost_table import Cost, CostTable, Option

DEGREES = (1, 2, 4, 8)


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    num_classes = draw(st.integers(0, 3))
    # Small ranges make ties common, so that the tie-breaking objectives are tested too.
    unit = draw(st.sampled_from([1, 10**9, 2**33]))
    values = st.integers(0, 12).map(lambda value: value * unit)
    addends = st.integers(-6, 6).map(lambda value: value * unit)
    costs = st.builds(Cost, values, st.tuples(*[addends] * num_classes))
    allowed = st.sampled_from([(False, True), (False,), (True,)])
    options = [
        Option(
            strategy=Strategy(1, 1, 1, DEGREES[number % len(DEGREES)]),
            shape=StepShape(8, 1 + number // len(DEGREES), 1),
            may_recompute=tuple(draw(allowed) for _ in range(num_classes)),
            phases_ns=tuple(
                (*draw(st.lists(costs, min_size=1, max_size=2)), Cost(0, (0,) * num_classes)) for _ in range(2)
            ),
            memory_bytes=(*draw(st.lists(costs, min_size=1, max_size=3)), Cost(0, (0,) * num_classes)),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return CostTable(
        engine="deepspeed",
        num_classes=num_classes,
        groups=tuple((number,) for number in range(num_classes)),
        options=tuple(options),
        budget_bytes=draw(st.integers(0, 14)) * unit,
    )
