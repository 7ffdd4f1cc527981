"""Random steps of both engines, small enough to be played through many times."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hand_workload import hand_workload
from hypothesis import strategies as st

from costmodels.assign import assign
from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.schedule import schedule as deepspeed_schedule
from costmodels.deepspeed.traffic import traffic as deepspeed_traffic
from costmodels.degrees import strategies
from costmodels.engine import Assignment, Message
from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.schedule import Schedule
from costmodels.step import step_time
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount, Block, ModuleCall, Parameter, Segment, Workload
from planner.machine import Machine
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline


@dataclass(frozen=True)
class Case:
    """A step with an engine's order and its messages."""

    workload: Workload
    assignment: Assignment
    shape: StepShape
    machine: Machine
    schedule: Schedule
    traffic: tuple[Message, ...]

    def timeline(self, machine: Machine | None = None) -> Timeline:
        return simulate(self.workload, self.schedule, self.assignment, self.shape, machine or self.machine)

    def bound_ns(self) -> int:
        """What `costmodels.step` says."""
        network, speed = self.machine.network, self.machine.speed
        return step_time(self.workload, self.traffic, self.assignment, self.shape, network, speed).step_ns

    def with_overlap(self, overlap: float) -> Case:
        return replace(self, machine=replace(self.machine, speed=replace(self.machine.speed, overlap=overlap)))

    def slower(self, level: int) -> Machine:
        network = self.machine.network
        slow = replace(network.levels[level], unit_bytes_per_s=network.levels[level].unit_bytes_per_s / 1.5)
        levels = (*network.levels[:level], slow, *network.levels[level + 1 :])
        return replace(self.machine, network=replace(network, levels=levels))


@st.composite
def machines(draw: st.DrawFn, level_sizes: tuple[int, ...] | None = None) -> Machine:
    sizes = level_sizes or draw(st.sampled_from([(2, 2), (2, 3), (4,), (2, 2, 2)]))
    levels = tuple(NetworkLevel(size, draw(st.floats(1e6, 1e9)), draw(st.sampled_from([0.0, 1e-6]))) for size in sizes)
    speed = DeviceSpeed(1e9, 1e9, 1e-7, draw(st.sampled_from([0.0, 0.37, 1.0])))
    return Machine(Network(levels), speed, 1e9, 10**12, sizes[0])


@st.composite
def shapes(draw: st.DrawFn, machine: Machine) -> StepShape:
    precision = draw(st.sampled_from(["bf16", "fp32"]))
    return StepShape(
        machine.network.world_size,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        precision,
        ranks_per_node=machine.ranks_per_node,
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to five blocks of up to three modules; the last one may borrow the first one's parameters."""
    parameters: list[Parameter] = []
    blocks: list[Block] = []
    forward, backward = [], []
    num_blocks = draw(st.integers(1, 5))
    for number in range(num_blocks):
        sizes = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=3))
        trainable = number == 0 or draw(st.sampled_from([True, True, False]))
        owned = tuple(range(len(parameters), len(parameters) + len(sizes)))
        names = [f"{number}.{place}" for place in range(len(sizes))]
        parameters += [Parameter(f"{name}.weight", (size,), trainable) for name, size in zip(names, sizes, strict=True)]
        blocks.append(Block(f"{number}", number, owned, draw(st.booleans())))
        borrowed = (0,) if number == num_blocks - 1 and draw(st.booleans()) else ()
        calls = (
            ModuleCall(f"{number}", borrowed),
            *(ModuleCall(name, (index,), 2, number > 0) for name, index in zip(names, owned, strict=True)),
        )
        flop = Amount(0, draw(st.integers(0, 10**4)))
        forward.append(Segment(number, "forward", calls, flop, Amount(), 1))
        done = tuple(reversed(owned)) if trainable else ()
        backward.append(Segment(number, "backward", calls, flop + flop, Amount(), 1, gradients=done))
    return Workload(tuple(parameters), tuple(blocks), (*forward, *reversed(backward)))


@st.composite
def assigned(draw: st.DrawFn, frozen: bool = False) -> tuple[Workload, Assignment, StepShape, Machine]:
    """A step of the ideal schedule: each block with a strategy of its own; frozen ones gather, and send no more."""
    machine, workload = draw(machines()), draw(workloads())
    space = strategies(tuple(level.size for level in machine.network.levels))
    if frozen:
        parameters = tuple(replace(each, trainable=False) for each in workload.parameters)
        segments = tuple(replace(each, gradients=()) for each in workload.segments)
        workload = replace(workload, parameters=parameters, segments=segments)
    strategy = st.builds(
        lambda each, recompute: replace(each, recompute=recompute),
        st.sampled_from(space),
        st.sampled_from(["none", "full"]),
    )
    chosen = {number: draw(strategy) for number in range(len(workload.blocks))}
    return *assign(workload, chosen), draw(shapes(machine)), machine


def played(workload: Workload, assignment: Assignment, shape: StepShape, machine: Machine) -> Case:
    """Returns a step of the ideal schedule."""
    order = FSDP.schedule(workload, assignment, shape)
    return Case(workload, assignment, shape, machine, order, FSDP.traffic(workload, assignment, shape))


ideal = assigned().map(lambda given: played(*given))


@st.composite
def deepspeed(draw: st.DrawFn) -> Case:
    """Settings are drawn as such, so that some are no planner's: tiny buckets, prefetch of less than a parameter."""
    machine, workload = draw(machines()), draw(workloads())
    knobs = Knobs(
        stage=draw(st.integers(0, 3)),
        overlap_comm=draw(st.booleans()),
        reduce_bucket_size=draw(st.sampled_from([500, 2000, 10**6])),
        prefetch_bucket_size=draw(st.sampled_from([1, 1500, 10**6])),
        param_persistence_threshold=draw(st.sampled_from([0, 400])),
        max_live_parameters=draw(st.sampled_from([0, 3000, 10**6])),
        max_reuse_distance=draw(st.sampled_from([0, 10**6])),
        hpz_partition_size=draw(st.sampled_from([1, machine.ranks_per_node])),
        quantized_gradients=draw(st.booleans()),
    )
    if knobs.stage < 3:
        knobs = replace(knobs, hpz_partition_size=1, quantized_gradients=False)
    recompute = draw(st.sampled_from(["none", "full"]))
    assignment = (Strategy(1, 1, 1, 1, recompute),) * workload.num_classes
    shape = draw(shapes(machine))
    order = deepspeed_schedule(workload, assignment, shape, knobs)
    return Case(workload, assignment, shape, machine, order, deepspeed_traffic(workload, assignment, shape, knobs))


@st.composite
def equal_blocks(draw: st.DrawFn) -> Case:
    """Steps of the ideal schedule on one level, whose first gather and last reduction are as long as any."""
    machine = draw(machines((4,)))
    num_blocks, able = draw(st.integers(1, 6)), draw(st.integers(0, 1))
    sizes = (draw(st.integers(1, 3000)),) * num_blocks
    workload = hand_workload(sizes, (able,) * num_blocks, flop=draw(st.integers(0, 10**4)))
    strategy = replace(draw(st.sampled_from(strategies((4,)))), recompute=draw(st.sampled_from(["none", "full"])))
    return played(workload, (strategy,) * workload.num_classes, draw(shapes(machine)), machine)
