"""The walk over the segments, and each term of what DeepSpeed holds, by arithmetic on round numbers."""

from dataclasses import replace

import pytest
from hand_workload import hand_workload, recomputed, timeline

from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.memory import memory
from costmodels.engine import Components, Course, EngineMemory
from costmodels.memory import moments, step_memory
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount, Event, Timeline

N = 4
STAGES = {0: (1, 1, 1, 1), 1: (1, 1, 1, N), 2: (1, 1, N, N), 3: (N, N, N, N)}
"""(p, s, g, o)."""

SIZES = (80, 40, 40, 40)
P = sum(SIZES)


def with_activations(workload, peak, net, kept=0):
    """Forward holds `peak` and leaves `net` bytes per sample in every block; backward gives back what it left."""

    def with_timelines(segment):
        left = Amount(0, net if segment.phase == "forward" else -net)
        again = recomputed(segment.phase, Amount(0, peak), left, Amount(0, kept), Amount(0, peak))
        able = workload.blocks[segment.block].recomputable
        return replace(segment, timeline=timeline(Amount(0, peak), left), recomputed=again if able else None)

    segments = tuple(map(with_timelines, workload.segments))
    return replace(workload, segments=segments)


def nothing_held(workload, update=0):
    return EngineMemory(
        at_rest=Components(parameters=1000),
        init_peak_bytes=2000,
        during_update=Components(optimizer_step=update),
    )


def assignment(workload, stage=0, recompute="none"):
    return (Strategy(*STAGES[stage], recompute=recompute),) * workload.num_classes


def shape(precision="fp32", num_micro_batches=1, micro_batch_size=1, device="cpu", optimizer="adamw"):
    return StepShape(N, micro_batch_size, num_micro_batches, precision, optimizer, device)


def engine(stage, precision="fp32", num_micro_batches=1, device="cpu", workload=None, optimizer="adamw", **knobs):
    workload = workload or hand_workload(SIZES)
    settings = {"reduce_bucket_size": 50, "overlap_comm": False, "param_persistence_threshold": 0, **knobs}
    return memory(
        workload,
        assignment(workload, stage),
        shape(precision, num_micro_batches, device=device, optimizer=optimizer),
        Knobs(stage=stage, **settings),
    )


def test_activations_pile_up_to_the_last_block_and_go_again():
    workload = with_activations(hand_workload(), peak=30, net=20)
    found = moments(workload, nothing_held(workload), assignment(workload), shape(micro_batch_size=2))
    forward = [moment.activation_bytes for moment in found if moment.phase.startswith("forward")]
    backward = [moment.activation_bytes for moment in found if moment.phase.startswith("backward")]
    assert forward == [60, 100, 140, 180]
    assert backward == [220, 180, 140, 100]


def test_peak_is_at_the_first_backward_without_recomputation():
    workload = with_activations(hand_workload(), peak=30, net=20)
    result = step_memory(workload, nothing_held(workload), assignment(workload), shape(), reserved_bytes=7)
    assert (result.peak_bytes, result.peak_phase) == (1000 + 110 + 7, "backward of block.3")
    assert (result.at_rest_bytes, result.init_peak_bytes) == (1007, 2007)
    assert result.components == Components(parameters=1000, activations=110, reserved=7)


def test_a_recomputed_block_leaves_what_others_hold_and_runs_forward_again():
    workload = with_activations(hand_workload(), peak=30, net=20, kept=5)
    found = {
        moment.phase: moment.activation_bytes
        for moment in moments(
            workload, nothing_held(workload), assignment(workload, recompute="full"), shape(micro_batch_size=1)
        )
    }
    # Class 1 (blocks 1 and 2) is recomputable; blocks 0 and 3 keep all 20.
    assert found["forward of block.3"] == 20 + 5 + 5 + 30
    assert found["backward of block.3"] == 20 + 5 + 5 + 20 + 30
    assert found["recomputation of block.2"] == 20 + 5 + 5 + 30
    assert found["backward of block.2"] == 20 + 5 + 20 + 30
    assert found["backward of block.0"] == 20 + 30


def test_input_and_buffers_are_alive_when_they_are():
    workload = replace(with_activations(hand_workload(), peak=30, net=20), input_bytes=Amount(3, 4), buffer_bytes=50)
    result = step_memory(workload, nothing_held(workload), assignment(workload), shape(micro_batch_size=2))
    assert result.at_rest_bytes == 1050
    assert result.components.activations == 11 + 220
    assert result.components.parameters == 1050


def test_what_an_engine_holds_is_laid_over_the_moment_at_which_a_gradient_comes():
    workload = hand_workload((100,), (0,))
    # 60 bytes come and go before the gradient is complete, 20 of them are still there then; afterwards 30 more come.
    backward = Timeline((Event(60, 0), Event(-40, 0), Event(30, 0), Event(-50, 0)), completed=(2,))
    workload = replace(workload, segments=(workload.segments[0], replace(workload.segments[1], timeline=backward)))

    def peak(*gradients):
        course = tuple(Components(gradients=held) for held in gradients)
        held = replace(nothing_held(workload), course=Course(((Components(),), course)))
        result = step_memory(workload, held, assignment(workload), shape())
        return result.peak_bytes - 1000

    assert peak(0, 0, 0) == 60
    assert peak(0, 70, 0) == 20 + 70
    assert peak(0, 15, 15) == 50 + 15
    assert peak(5, 40, 20) == max(60 + 5, 20 + 40, 50 + 20)
    assert peak(100) == 60 + 100  # Of a course of another length only the worst is known.


def test_the_update_is_the_peak_when_it_holds_most():
    workload = hand_workload()
    result = step_memory(workload, nothing_held(workload, update=99), assignment(workload), shape())
    assert (result.peak_bytes, result.peak_phase) == (1099, "update")


@pytest.mark.parametrize(
    ("stage", "precision", "parameters", "gradients", "optimizer_states", "buffers"),
    [
        (0, "fp32", 4 * P, 0, 8 * P, 0),
        (0, "bf16", 2 * P, 0, 12 * P, 0),
        (1, "fp32", 4 * P, 0, 12 * P // N, 0),
        (2, "fp32", 4 * P, 0, 12 * P // N, 0),
        (2, "bf16", 2 * P, 0, 12 * P // N, 0),
        (3, "fp32", 4 * P // N, 4 * P // N, 12 * P // N, 4 * 50),
        (3, "bf16", 2 * P // N, 2 * P // N, 12 * P // N, 2 * 50),
    ],
)
def test_states_at_rest(stage, precision, parameters, gradients, optimizer_states, buffers):
    rest = engine(stage, precision).at_rest
    assert rest == Components(
        parameters=parameters, gradients=gradients, optimizer_states=optimizer_states, buffers=buffers
    )


def test_sgd_has_no_moments():
    assert engine(0, optimizer="sgd").at_rest.optimizer_states == 0
    assert engine(2, optimizer="sgd").at_rest.optimizer_states == 4 * P // N


def test_partitions_are_padded_to_two_elements_per_rank():
    rest = engine(1, workload=hand_workload((81, 40, 40, 40))).at_rest
    assert rest.parameters == 4 * 208
    assert rest.optimizer_states == 12 * 52


def test_every_tensor_of_stage_3_is_padded_on_its_own():
    rest = engine(3, workload=hand_workload((81, 41, 41, 41)), reduce_bucket_size=1).at_rest
    assert rest.parameters == 4 * (21 + 11 + 11 + 11)


def test_frozen_parameters_have_neither_gradients_nor_states():
    workload = hand_workload(SIZES, frozen=(0,))
    assert engine(0, workload=workload).at_rest == Components(parameters=4 * P, optimizer_states=8 * 120)
    assert engine(2, workload=workload).at_rest == Components(parameters=4 * P, optimizer_states=12 * 30 + 0)


def test_persistent_parameters_are_held_whole_beside_their_shards():
    rest = engine(3, param_persistence_threshold=40).at_rest
    assert rest.parameters == 4 * P // N + 4 * 120


def test_stage_0_keeps_gradients_as_backward_makes_them():
    during = engine(0).during_segment
    assert [held.gradients for held in during] == [0, 0, 0, 0, 160, 320, 480, 800]


def test_stage_0_keeps_all_gradients_between_micro_batches_and_one_more_while_it_is_added():
    during = engine(0, num_micro_batches=2).during_segment
    assert [held.gradients for held in during] == [800, 800, 800, 800, 960, 960, 960, 800 + 320]


def test_stage_0_flattens_all_gradients_to_reduce_them():
    assert engine(0).during_update == Components(gradients=4 * P, buffers=4 * P)


def test_stage_0_makes_fp32_gradients_in_half_precision():
    on_cuda = engine(0, "bf16", device="cuda").during_update
    assert on_cuda == Components(gradients=2 * P, optimizer_step=4 * P)
    on_cpu = engine(0, "bf16").during_update
    assert on_cpu == Components(gradients=2 * P, buffers=2 * P, optimizer_step=4 * P)


def test_stage_2_keeps_whole_the_gradients_that_touch_its_partition():
    # Partitions of 50: [0,50) and [50,100) touch tensor 0 and 0+1, [100,150) touches 1 and 2, [150,200) 2 and 3.
    last = engine(2, num_micro_batches=2, reduce_bucket_size=80).during_segment[-1]
    once = 4 * (80 + 40)
    assert last.gradients == 2 * once + 4 * 80


def test_stage_2_flattens_a_bucket_when_the_next_gradient_does_not_fit():
    many = hand_workload((8,) * 25, (0,) * 25)
    during = engine(2, workload=many, reduce_bucket_size=100, device="cuda").during_segment
    # Twelve fit. The thirteenth waits while they are reduced; then the 7 that touch the fullest partition are kept.
    assert during[25 + 12] == Components(gradients=4 * 8, buffers=4 * 100 + 4 * 96)
    assert during[25 + 13] == Components(gradients=4 * 8 + 4 * 56, buffers=4 * 100)


def test_gloo_gives_the_flat_copy_up_after_what_is_kept_is_allocated():
    many = hand_workload((8,) * 25, (0,) * 25)
    during = engine(2, workload=many, reduce_bucket_size=100, device="cpu").during_segment
    assert during[25 + 12] == Components(gradients=4 * 8 + 4 * 56, buffers=4 * 100 + 4 * 96)


def test_one_piece_is_reduced_where_it_is_and_several_in_a_flat_copy():
    during = engine(2, device="cuda").during_segment
    # Tensor 3 lies in the last partition alone, tensor 2 in two. Each rank allocates when its first gradient comes.
    assert during[5] == Components(gradients=4 * 40 + 4 * 80, buffers=4 * 50)
    assert during[6] == Components(gradients=4 * 40 + 4 * 80, buffers=4 * 50 + 4 * 40)


def test_a_gradient_larger_than_the_bucket_waits_where_it_is():
    at_end = engine(2, device="cuda").during_update
    assert at_end == Components(gradients=4 * 80 + 4 * 120, buffers=4 * 50 + 4 * 80)
    head = hand_workload((40, 40, 40, 80))
    during = engine(3, workload=head, device="cuda").during_segment
    assert [held.gradients for held in during[4:]] == [4 * 80, 4 * (80 + 40), 4 * 40, 4 * 40]


def test_ranks_of_stage_1_hold_large_gradients_that_others_keep():
    # The last tensor waits; the third rank keeps it and the one before, and has given up only that one.
    workload = hand_workload((40, 40, 40, 80))
    update = engine(1, workload=workload, reduce_bucket_size=39, device="cuda").during_update
    assert update == Components(gradients=4 * (80 + 80 + 120), buffers=4 * 39 + 4 * 80)


def test_the_buffer_of_a_joined_gather_stays_until_its_last_parameter_is_asked_for():
    workload = hand_workload((8,) * 4, (0,) * 4)
    knobs = {"prefetch_bucket_size": 16, "max_live_parameters": 24, "max_reuse_distance": 0}

    def window(device):
        held = engine(3, workload=workload, device=device, **knobs).during_segment
        return [segment.gathered_parameters // 4 for segment in held]

    # The first is used while the next two arrive; then both are beside their buffer, and the fourth arrives.
    assert window("cuda")[:2] == [8 + 16, 16 + 16 + 8]
    assert window("cpu")[:2] == [8 + 16 + 16, 16 + 16 + 8 + 8]


def test_a_segment_without_modules_holds_what_the_last_one_left():
    workload = hand_workload((8, 8))
    loss = replace(workload.segments[1], calls=())
    workload = replace(workload, segments=(*workload.segments[:2], loss, *workload.segments[2:]))
    during = engine(3, workload=workload, max_reuse_distance=1000, device="cuda").during_segment
    assert [held.gathered_parameters for held in during[1:4]] == [4 * 16] * 3


def test_overlap_doubles_the_bucket_of_stage_2_but_not_of_stage_3():
    assert engine(2, overlap_comm=True, device="cuda").during_segment[5].buffers == 2 * 4 * 50
    assert engine(3, overlap_comm=True).at_rest.buffers == 4 * 50


def test_stage_1_waits_with_all_gradients_and_its_bucket():
    during = engine(1, num_micro_batches=2).during_segment
    assert during[0] == Components(gradients=4 * P, buffers=4 * 50)
    assert during[7] == Components(gradients=4 * P + 4 * 80, buffers=4 * 50)


@pytest.mark.parametrize(
    ("num_micro_batches", "after_forward_of"), [(1, [80, 120, 160, 200]), (2, [200, 200, 200, 200])]
)
def test_secondary_shards_are_made_at_first_release_and_live_within_the_step(num_micro_batches, after_forward_of):
    workload = hand_workload(SIZES)
    hpz = (Strategy(N, 2, N, N),) * workload.num_classes
    knobs = Knobs(stage=3, overlap_comm=False, reduce_bucket_size=1, param_persistence_threshold=0)
    knobs = replace(knobs, max_reuse_distance=0, max_live_parameters=0)
    step = shape(num_micro_batches=num_micro_batches)
    plain = memory(workload, hpz, step, knobs)
    split = memory(workload, hpz, step, replace(knobs, hpz_partition_size=2))
    assert split.at_rest == plain.at_rest
    extra = [
        b.gathered_parameters - a.gathered_parameters
        for a, b in zip(plain.during_segment, split.during_segment, strict=True)
    ]
    assert extra == [4 * elements // 2 for elements in (*after_forward_of, *[P] * 4)]


def test_gloo_copies_what_it_gathers_and_nccl_does_not():
    many = hand_workload((8,) * 25, (0,) * 25)
    on_cpu = engine(2, workload=many, reduce_bucket_size=8).during_update
    assert on_cpu == Components(buffers=4 * P)
    on_cuda = engine(2, workload=many, reduce_bucket_size=8, device="cuda").during_update
    assert on_cuda.total_bytes < 4 * P


def test_norms_are_taken_of_fp64_copies():
    on_cuda = engine(2, reduce_bucket_size=1, device="cuda").during_update
    assert on_cuda == Components(gradients=4 * 120, optimizer_step=8 * 50)


def test_stage_3_updates_a_group_of_shards_at_a_time():
    workload = hand_workload((8,) * 25, (0,) * 25)
    whole = engine(3, "bf16", workload=workload, reduce_bucket_size=1).during_update
    assert whole == Components(optimizer_step=(2 + 4) * 50)
    groups = engine(3, "bf16", workload=workload, reduce_bucket_size=1, sub_group_size=20).during_update
    assert groups == Components(optimizer_step=(2 + 4) * 20)


def test_building_needs_a_second_flat_copy_at_stages_1_and_2_and_a_first_update_at_stage_0():
    assert engine(0).init_peak_bytes == 4 * P
    assert engine(0, "bf16").init_peak_bytes == (2 + 12) * P + (2 + 4) * P
    assert engine(1).init_peak_bytes == 8 * P
    assert engine(1, "bf16").init_peak_bytes == 4 * P + 2 * 80  # the first cast beside the model in fp32


def test_building_stage_3_gathers_one_parameter_after_the_other_and_gloo_may_hold_the_copy_before():
    held_bytes = 4 * P // N * 3 + 4 * 50  # shards, their fp32 clone and gradients; the bucket
    on_cuda = engine(3, device="cuda", workload=hand_workload((40, 40, 40, 80))).init_peak_bytes
    assert on_cuda == held_bytes + 4 * 80
    on_cpu = engine(3, workload=hand_workload((40, 40, 40, 80))).init_peak_bytes
    assert on_cpu == held_bytes + 4 * (2 * 80 + 40)


def test_secondary_shards_of_frozen_parameters_are_held_at_rest():
    workload = hand_workload(SIZES, frozen=(0, 2))
    hpz = (Strategy(N, 2, N, N),) * workload.num_classes
    knobs = Knobs(stage=3, overlap_comm=False, reduce_bucket_size=50, param_persistence_threshold=0)
    plain = memory(workload, hpz, shape(), knobs)
    split = memory(workload, hpz, shape(), replace(knobs, hpz_partition_size=2))
    assert split.at_rest.parameters - plain.at_rest.parameters == 4 * (SIZES[0] + SIZES[2]) // 2
    update = split.during_update.gathered_parameters - plain.during_update.gathered_parameters
    assert update == 4 * (SIZES[1] + SIZES[3]) // 2


def test_a_frozen_parameter_is_whole_once_when_it_is_given_its_weights():
    largest = 4000
    workload = hand_workload((largest, 40, 40, 40), frozen=(0,))
    built = engine(3, workload=workload).init_peak_bytes
    assert built == 4 * (largest // N + largest)
