"""Laws of the cost table, which shares what costs have in common: each total is what its choice costs on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from test_memory_laws import workloads

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.degrees import strategies
from costmodels.engine import Assignment, Components, Course, Engine, EngineMemory
from costmodels.fsdp import FSDP
from costmodels.memory import moments, moments_bytes, step_memory
from costmodels.step import step_time
from costmodels.strategy import Offload, StepShape, Strategy
from costmodels.workload import Recomputed, Workload
from hw_profiles.load import load
from hw_profiles.resize import resize
from planner.estimate import estimate
from planner.machine import Machine, machine

EXAMPLES = settings(max_examples=40, deadline=None)
ENGINES: dict[str, Engine] = {"deepspeed": DEEPSPEED, "fsdp": FSDP}
_DGX = load("dgx-a100-80gb")
MACHINES = {num_nodes: machine(resize(_DGX, num_nodes), "bf16") for num_nodes in (1, 2, 4)}

machines = st.sampled_from(tuple(MACHINES.values()))


def shapes_on(where: Machine) -> tuple[StepShape, ...]:
    """Steps of every kind of number of micro-batches: one, two, three, and more."""
    numbers = ((5, 1), (2, 2), (1, 3), (1, 7), (8, 1))
    return tuple(
        StepShape(where.world_size, size, number, ranks_per_node=where.ranks_per_node) for size, number in numbers
    )


@st.composite
def candidates(draw: st.DrawFn, where: Machine, engine: str) -> tuple[Strategy, ...]:
    """A few strategies of the engine, with all that can go with them."""
    space = strategies(where.level_sizes)
    if engine == "fsdp":
        return tuple(draw(st.lists(st.sampled_from(space), min_size=1, max_size=3)))
    world = where.world_size
    native = [each for each in space if each.degrees in {(1, 1, 1), (1, 1, world), (1, world, world), (world,) * 3}]
    plain = draw(st.lists(st.sampled_from(native), min_size=1, max_size=3))
    offloads: st.SearchStrategy[Offload] = st.sampled_from(["none", "none", "optimizer", "all"])
    return tuple(replace(each, offload=draw(offloads), quantized_weights=draw(st.booleans())) for each in plain)


@EXAMPLES
@given(st.data(), workloads(), machines, st.sampled_from(tuple(ENGINES)))
def test_every_total_is_what_its_choice_costs_alone(
    data: st.DataObject, workload: Workload, where: Machine, name: str
) -> None:
    engine = ENGINES[name]
    space = data.draw(candidates(where, name))
    table = estimate(workload, engine, where, space, shapes_on(where), "auto", 10**12)
    for option in table.options:
        recomputed = data.draw(st.sampled_from(option.recomputations()))
        assignment = table.assignment(option.strategy, recomputed)
        messages = engine.traffic(workload, assignment, option.shape)
        time = step_time(workload, messages, assignment, option.shape, where.network, where.speed)
        memory = step_memory(workload, engine.memory(workload, assignment, option.shape), assignment, option.shape)
        assert option.step_ns(recomputed) == time.step_ns
        assert option.peak_bytes(recomputed) == memory.peak_bytes


@EXAMPLES
@given(st.data(), workloads(), machines, st.integers(1, 64))
def test_memory_by_arrays_is_the_walk_over_the_step(
    data: st.DataObject, workload: Workload, where: Machine, size: int
) -> None:
    shape = StepShape(where.world_size, size, data.draw(st.integers(1, 3)))
    name = data.draw(st.sampled_from(tuple(ENGINES)))
    (strategy, *_) = data.draw(candidates(where, name))
    strategy = replace(strategy, quantized_weights=False, offload="none")
    full = data.draw(st.tuples(*[st.booleans()] * workload.num_classes))
    assignment = tuple(replace(strategy, recompute="full" if each else "none") for each in full)
    held = ENGINES[name].memory(workload, assignment, shape)
    if data.draw(st.booleans()):
        held = replace(held, course=scrambled(data.draw(st.randoms(use_true_random=False)), held.course))
    expected = [held.at_rest.total_bytes + num_bytes for num_bytes in walk(workload, held, assignment, size)]
    assert moments_bytes(workload, held, assignment, shape).tolist() == expected
    assert [moment.num_bytes for moment in moments(workload, held, assignment, shape)] == expected
    peak = step_memory(workload, held, assignment, shape)
    assert peak.peak_bytes == max(expected) == peak.components.total_bytes


def scrambled(random: object, course: Course | None) -> Course:
    """Another course, with more parts than gradients in some segments: what is told of them does not say when."""
    assert course is not None
    segments = []
    for parts in course.segments:
        others = [Components(gradients=random.randint(0, 500)) for _ in parts]  # type: ignore[attr-defined]
        segments.append((*others, *others[:1]) if random.random() < 0.3 else tuple(others))  # type: ignore[attr-defined]
    return Course(tuple(segments))


def walk(workload: Workload, held: EngineMemory, assignment: Assignment, size: int) -> Iterator[int]:
    """Yields the bytes beyond at rest of each moment, one after the other, as `costmodels.memory` says in words."""
    alive = workload.input_bytes.at(size)
    able = [block for block in workload.blocks if block.recomputable]
    all_full = all(assignment[block.block_class].recompute == "full" for block in able)
    assert held.course is not None
    for number, segment in enumerate(workload.segments):
        block = workload.blocks[segment.block]
        is_full = assignment[block.block_class].recompute == "full" if block.recomputable else all_full
        own = (segment.recomputed if is_full else None) or Recomputed(segment.timeline)
        if held.entering_segment:
            yield alive + held.entering_segment[number].total_bytes
        beside = held.throughout[number].total_bytes if held.throughout else 0
        parts = [part.total_bytes for part in held.course.segments[number]]
        if len(parts) != 2 * len(own.timeline.completed) + 1:
            parts = [max(parts)] * (2 * len(own.timeline.completed) + 1)
        if segment.phase == "backward":
            yield alive + own.again.peak_bytes(size) + beside + parts[0]
            alive += own.again.net_bytes.at(size)
        live = [*own.timeline.peaks_bytes(size), *own.timeline.completing_bytes(size)]
        yield alive + beside + max(a + b for a, b in zip(live, [*parts[::2], *parts[1::2]], strict=True))
        alive += own.timeline.net_bytes.at(size)
    yield held.during_update.total_bytes
