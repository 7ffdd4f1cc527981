"""Random workloads, machines and assignments for the laws of the formulas."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from costmodels.degrees import strategies
from costmodels.engine import Assignment
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.strategy import StepShape
from costmodels.workload import Amount, Block, Parameter, Phase, Segment, Workload

HIERARCHIES = ((1,), (4,), (2, 3), (4, 2), (2, 2, 2), (8, 4))
PHASES: tuple[Phase, ...] = ("forward", "backward")


@dataclass(frozen=True)
class Case:
    """All that a cost model is asked about."""

    workload: Workload
    assignment: Assignment
    shape: StepShape
    network: Network
    speed: DeviceSpeed

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Sizes of the machine's levels, inner first."""
        return tuple(level.size for level in self.network.levels)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to five blocks of up to three parameters, in up to three classes; some frozen, some recomputable."""
    num_blocks = draw(st.integers(1, 5))
    parameters: list[Parameter] = []
    blocks: list[Block] = []
    num_classes = 0
    for number in range(num_blocks):
        sizes = draw(st.lists(st.integers(1, 5000), max_size=3))
        trainable = draw(st.sampled_from([True, True, True, False]))
        owned = tuple(range(len(parameters), len(parameters) + len(sizes)))
        parameters += [
            Parameter(f"{number}.{index}", (size,), trainable) for index, size in zip(owned, sizes, strict=True)
        ]
        block_class = draw(st.integers(0, min(num_classes, 2)))
        num_classes = max(num_classes, block_class + 1)
        blocks.append(Block(f"{number}", block_class, owned, draw(st.booleans())))
    amounts = st.builds(Amount, st.integers(0, 10**6), st.integers(0, 10**6))
    segments = [
        Segment(block, phase, (), draw(amounts), draw(amounts), draw(st.integers(0, 50)))
        for phase in PHASES
        for block in (range(num_blocks) if phase == "forward" else reversed(range(num_blocks)))
    ]
    return Workload(tuple(parameters), tuple(blocks), tuple(segments))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A workload on a machine, with a strategy of its own for each class."""
    workload = draw(workloads())
    level_sizes = draw(st.sampled_from(HIERARCHIES))
    space = st.sampled_from(strategies(level_sizes))
    recompute = st.sampled_from(["none", "full"])
    assignment = tuple(replace(draw(space), recompute=draw(recompute)) for _ in range(workload.num_classes))
    levels = tuple(
        NetworkLevel(size, draw(st.floats(1e6, 1e10)), draw(st.sampled_from([0.0, 1e-6, 1e-5]))) for size in level_sizes
    )
    shape = StepShape(
        Network(levels).world_size,
        draw(st.integers(1, 8)),
        draw(st.integers(1, 5)),
        draw(st.sampled_from(["bf16", "fp32"])),
        draw(st.sampled_from(["adamw", "sgd"])),
    )
    speed = DeviceSpeed(
        draw(st.floats(1e8, 1e12)),
        draw(st.floats(1e8, 1e12)),
        draw(st.sampled_from([0.0, 1e-6])),
        draw(st.sampled_from([0.0, 0.37, 0.9, 1.0])),
    )
    return Case(workload, assignment, shape, Network(levels), speed)
