"""Laws of memory that hold for every workload: of the walk over the step, and of what DeepSpeed holds."""

import itertools
from dataclasses import replace

from hand_workload import recomputed, timeline
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.memory import memory
from costmodels.memory import moments, step_memory
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount, Block, Event, ModuleCall, Parameter, Segment, Timeline, Workload

WIDTH = {"fp32": 4, "bf16": 2}


@st.composite
def workloads(draw):
    """Blocks that leave behind what backward takes away again, some recomputable, some frozen."""
    blocks, parameters, forward, backward = [], [], [], []
    for number in range(draw(st.integers(1, 4))):
        sizes = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=3))
        trainable = draw(st.sampled_from([True, True, True, False]))
        owned = tuple(range(len(parameters), len(parameters) + len(sizes)))
        parameters += [Parameter(f"{number}.{i}", (size,), trainable) for i, size in zip(owned, sizes, strict=True)]
        blocks.append(Block(f"{number}", number, owned, draw(st.booleans())))
        net = Amount(draw(st.integers(0, 50)), draw(st.integers(0, 5000)))
        peak = net + Amount(draw(st.integers(0, 50)), draw(st.integers(0, 5000)))
        kept = Amount(draw(st.integers(0, net.constant)), draw(st.integers(0, net.per_sample)))
        calls = (ModuleCall(f"{number}", owned, inputs_require_grad=number > 0),)
        able = blocks[-1].recomputable
        again = recomputed("forward", peak, net, kept, peak) if able else None
        forward.append(Segment(number, "forward", calls, Amount(), Amount(), 1, timeline(peak, net), recomputed=again))
        freed = Amount(-net.constant, -net.per_sample)
        more = Amount(draw(st.integers(0, 50)), draw(st.integers(0, 5000)))
        held_again = recomputed("backward", more, freed, kept, peak) if able else None
        backward.append(
            Segment(
                number,
                "backward",
                calls,
                Amount(),
                Amount(),
                1,
                timeline(more, freed),
                gradients=owned * trainable,
                recomputed=held_again,
            )
        )
    parameters[0] = replace(parameters[0], trainable=True)
    return Workload(tuple(parameters), tuple(blocks), (*forward, *reversed(backward)))


def degrees(stage, world_size):
    p, g, o = [(1, 1, 1), (1, 1, world_size), (1, world_size, world_size), (world_size,) * 3][stage]
    return Strategy(p, p, g, o)


def held(workload, stage, shape, assignment=None, **knobs):
    assignment = assignment or (degrees(stage, shape.world_size),) * workload.num_classes
    chosen = Knobs(stage=stage, overlap_comm=shape.device == "cuda", **{"reduce_bucket_size": 2000, **knobs})
    return memory(workload, assignment, shape, chosen)


shapes = st.builds(
    StepShape,
    st.sampled_from([2, 4, 6, 8]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(["fp32", "bf16"]),
    st.sampled_from(["adamw", "sgd"]),
    st.sampled_from(["cpu", "cuda"]),
)
stages = st.sampled_from([0, 1, 2, 3])


def result(workload, stage, shape, recompute="none"):
    assignment = (replace(degrees(stage, shape.world_size), recompute=recompute),) * workload.num_classes
    return step_memory(workload, held(workload, stage, shape, assignment), assignment, shape)


@given(workloads(), stages, shapes)
def test_the_peak_is_the_sum_of_its_components_and_above_rest(workload, stage, shape):
    found = result(workload, stage, shape)
    assert found.components.total_bytes == found.peak_bytes
    assert found.peak_bytes >= found.at_rest_bytes > 0
    assert min(getattr(found.components, name) for name in found.components.__slots__) >= 0


@given(workloads(), stages, shapes)
def test_a_larger_micro_batch_never_takes_less(workload, stage, shape):
    larger = replace(shape, micro_batch_size=shape.micro_batch_size + 1)
    assert result(workload, stage, larger).peak_bytes >= result(workload, stage, shape).peak_bytes


@given(workloads(), stages, shapes)
def test_more_micro_batches_never_take_less(workload, stage, shape):
    one, two = (replace(shape, num_micro_batches=number) for number in (1, 2))
    # Stage 3's first micro-batch may find nothing gathered and later ones less to wait for, so its window is left out.
    first = [c.gradients + c.buffers for c in held(workload, stage, one).during_segment]
    later = [c.gradients + c.buffers for c in held(workload, stage, two).during_segment]
    assert all(more >= less for less, more in zip(first, later, strict=True))


@given(workloads(), st.sampled_from([1, 2, 3]), shapes)
def test_more_sharding_never_costs_memory_at_rest(workload, stage, shape):
    doubled = replace(shape, world_size=2 * shape.world_size)
    less, more = held(workload, stage, shape).at_rest, held(workload, stage, doubled).at_rest
    # Stages 1 and 2 pad the whole buffer to two elements per rank.
    padding = 0 if stage == 3 else WIDTH[shape.precision] * 2 * doubled.world_size
    assert more.total_bytes <= less.total_bytes + padding


@given(workloads(), shapes)
def test_each_stage_shards_what_it_says(workload, shape):
    plain, first, third = (held(workload, stage, shape).at_rest for stage in (0, 1, 3))
    trained = sum(p.num_elements for p in workload.parameters if p.trainable)
    padding = 2 * shape.world_size + len(workload.parameters)
    moments_bytes = 8 if shape.optimizer == "adamw" else 0
    bound = (4 + moments_bytes) * (trained / shape.world_size + padding)
    assert first.optimizer_states <= bound
    assert third.optimizer_states <= bound
    assert first.parameters >= plain.parameters


@given(workloads(), stages, shapes)
def test_recomputation_never_raises_what_forward_leaves(workload, stage, shape):
    def forward_activations(recompute):
        assignment = (replace(degrees(stage, shape.world_size), recompute=recompute),) * workload.num_classes
        found = moments(workload, held(workload, stage, shape, assignment), assignment, shape)
        return [moment.activation_bytes for moment in found if moment.phase.startswith("forward")]

    assert all(
        less <= more for less, more in zip(forward_activations("full"), forward_activations("none"), strict=True)
    )


@settings(max_examples=50)
@given(workloads(), shapes)
def test_activations_are_affine_in_what_is_recomputed(workload, shape):
    def activations(chosen):
        assignment = tuple(
            replace(degrees(0, shape.world_size), recompute="full" if number in chosen else "none")
            for number in range(workload.num_classes)
        )
        found = moments(workload, held(workload, 0, shape, assignment), assignment, shape)
        return [moment.activation_bytes for moment in found]

    none = activations(())
    alone = [activations((number,)) for number in range(workload.num_classes)]
    together = activations(tuple(range(workload.num_classes)))
    expected = [base + sum(one[i] - base for one in alone) for i, base in enumerate(none)]
    assert together == expected


@given(workloads(), stages, shapes)
def test_nothing_is_alive_when_backward_has_ended(workload, stage, shape):
    for recompute in ("none", "full"):
        assignment = (replace(degrees(stage, shape.world_size), recompute=recompute),) * workload.num_classes
        found = moments(workload, held(workload, stage, shape, assignment), assignment, shape)
        last = workload.segments[-1]
        held_by_last = last.recomputed.timeline if last.recomputed and recompute == "full" else last.timeline
        ended = found[-2].activation_bytes - held_by_last.peak_bytes(shape.micro_batch_size)
        assert ended + held_by_last.net_bytes.at(shape.micro_batch_size) == 0


events = st.builds(Event, st.integers(-500, 500), st.integers(-500, 500), st.booleans())


@given(st.lists(events, max_size=12), st.lists(st.integers(0, 12), max_size=4), st.integers(1, 40))
def test_the_peak_between_two_gradients_is_the_greatest_of_all_moments_between_them(found, cuts, size):
    completed = tuple(sorted(min(cut, len(found)) for cut in cuts))
    timeline = Timeline(tuple(found), completed)
    alive = [0]
    for event in found:
        alive.append(alive[-1] + (0 if event.is_gradient else event.constant + event.per_sample * size))
    bounds = [0, *completed, len(found)]
    expected = tuple(max(alive[first : last + 1]) for first, last in itertools.pairwise(bounds))
    assert timeline.peaks_bytes(size) == expected
    assert timeline.completing_bytes(size) == tuple(alive[cut] for cut in completed)
    assert timeline.peak_bytes(size) == max(alive)
    assert timeline.net_bytes.at(size) == alive[-1]
