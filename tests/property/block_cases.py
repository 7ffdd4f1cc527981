"""Random models of equal blocks, and machines, small enough that every per-class choice can be tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hand_workload import recomputed, timeline
from hypothesis import strategies as st

from costmodels.assign import assign
from costmodels.degrees import strategies
from costmodels.fsdp import FSDP
from costmodels.fsdp.holds import manner_of
from costmodels.memory import step_memory
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.step import step_time
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount, Block, ModuleCall, Parameter, Segment, Workload
from planner.machine import Machine

ORDERS = ((0, 1, 1), (1, 1, 1), (0, 1, 1, 2), (0, 1, 0, 1), (1, 1, 0))
"""Classes of blocks in order of execution; class 1 can be recomputed."""
SMALL_ORDERS = ((0, 1), (1, 1), (1, 1), (1, 0))


@dataclass(frozen=True)
class BlockCase:
    """A question of per-class choice."""

    workload: Workload
    machine: Machine
    shape: StepShape
    may_recompute: tuple[bool, ...]

    def costs(self, chosen: Mapping[int, Strategy]) -> tuple[int, int]:
        """Returns (ns of a step, bytes at its peak), by the functions that predict plans."""
        workload, assignment = assign(self.workload, chosen)
        messages = FSDP.traffic(workload, assignment, self.shape)
        time = step_time(workload, messages, assignment, self.shape, self.machine.network, self.machine.speed)
        memory = step_memory(workload, FSDP.memory(workload, assignment, self.shape), assignment, self.shape)
        return time.step_ns, memory.peak_bytes

    def choices(self) -> Iterator[dict[int, Strategy]]:
        """Yields every per-class choice: for each class a multiset of strategies, and how many are recomputed."""
        per_class = []
        space = sorted(strategies(self.machine.level_sizes), key=_place)
        for number in sorted({block.block_class for block in self.workload.blocks}):
            blocks = [index for index, block in enumerate(self.workload.blocks) if block.block_class == number]
            able = self.workload.blocks[blocks[0]].recomputable
            counts = range(len(blocks) + 1) if able else (0,)
            if able and len(self.may_recompute) == 1:
                counts = (len(blocks) * self.may_recompute[0],)
            per_class.append(
                [
                    dict(zip(blocks, _recomputed(chosen, count), strict=True))
                    for chosen in itertools.combinations_with_replacement(space, len(blocks))
                    for count in counts
                ]
            )
        for combined in itertools.product(*per_class):
            yield {block: strategy for part in combined for block, strategy in part.items()}


def _recomputed(chosen: Sequence[Strategy], count: int) -> list[Strategy]:
    """Returns the strategies of blocks of which the first so many are recomputed."""
    return [replace(each, recompute="full" if index < count else "none") for index, each in enumerate(chosen)]


def _place(strategy: Strategy) -> tuple[int, int, Strategy]:
    manner = manner_of(strategy)
    return (
        ("anew", "kept", "whole").index(manner.gathered),
        ("never", "once", "each").index(manner.reducing),
        strategy,
    )


@st.composite
def block_cases(draw: st.DrawFn) -> BlockCase:
    """A model of up to four blocks on two or three ranks, or of two on up to six."""
    level_sizes = draw(st.sampled_from([(2,), (3,), (2, 2), (4,), (6,)]))
    workload = draw(_workloads(ORDERS if level_sizes in ((2,), (3,)) else SMALL_ORDERS))
    levels = tuple(
        NetworkLevel(size, draw(st.floats(1e6, 1e9)), draw(st.sampled_from([0.0, 1e-6]))) for size in level_sizes
    )
    network = Network(levels)
    speed = DeviceSpeed(1e9, 1e9, 1e-7, draw(st.sampled_from([0.0, 0.37, 1.0])))
    shape = StepShape(
        network.world_size,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from(["bf16", "fp32"])),
        draw(st.sampled_from(["adamw", "sgd"])),
    )
    return BlockCase(
        workload,
        Machine(network, speed, 1e9, 10**12, level_sizes[0]),
        shape,
        draw(st.sampled_from([(False, True), (False, True), (False,), (True,)])),
    )


@st.composite
def _workloads(draw: st.DrawFn, orders: tuple[tuple[int, ...], ...]) -> Workload:
    order = draw(st.sampled_from(orders))
    classes = {number: draw(_classes(number == 1)) for number in sorted(set(order))}
    parameters: list[Parameter] = []
    blocks: list[Block] = []
    forward, backward = [], []
    borrows = draw(st.booleans())
    for index, number in enumerate(order):
        sizes, trainable, ahead, back = classes[number]
        trainable = trainable or number == order[0]
        owned = tuple(range(len(parameters), len(parameters) + len(sizes)))
        parameters += [Parameter(f"{index}.{i}", (size,), trainable) for i, size in zip(owned, sizes, strict=True)]
        blocks.append(Block(f"{index}", number, owned, number == 1))
        # The last block may read the first one's parameters, as a tied head does.
        borrowed = (0,) if borrows and index == len(order) - 1 else ()
        calls = (ModuleCall(f"{index}", owned + borrowed),)
        forward.append(replace(ahead, block=index, calls=calls))
        backward.append(replace(back, block=index, calls=calls, gradients=owned * trainable))
    return Workload(tuple(parameters), tuple(blocks), (*forward, *reversed(backward)), Amount(16, 8), 24)


@st.composite
def _classes(draw: st.DrawFn, recomputable: bool) -> tuple[list[int], bool, Segment, Segment]:
    sizes = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=2))
    trainable = draw(st.sampled_from([True, True, True, False]))
    net = Amount(draw(st.integers(0, 50)), draw(st.integers(0, 5000)))
    peak = net + Amount(draw(st.integers(0, 50)), draw(st.integers(0, 5000)))
    kept = Amount(draw(st.integers(0, net.constant)), draw(st.integers(0, net.per_sample)))
    more = Amount(draw(st.integers(0, 50)), draw(st.integers(0, 5000)))
    freed = Amount(-net.constant, -net.per_sample)
    flop = Amount(0, draw(st.integers(0, 10**6)))
    # A block that cannot be recomputed itself may still differ where all that can be are.
    differs = recomputable or draw(st.booleans())
    ahead = recomputed("forward", peak, net, kept, peak) if differs else None
    back = recomputed("backward", more, freed, kept, peak) if differs else None
    return (
        sizes,
        trainable,
        Segment(0, "forward", (), flop, Amount(), 1, timeline(peak, net), recomputed=ahead),
        Segment(0, "backward", (), flop + flop, Amount(), 1, timeline(more, freed), recomputed=back),
    )
