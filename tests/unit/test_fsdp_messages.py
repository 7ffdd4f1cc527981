"""The ideal schedule's messages and memory against bytes counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_workload import hand_workload, one_block

from costmodels.engine import Components, Message
from costmodels.fsdp import FSDP
from costmodels.fsdp.sizes import BlockSizes, Rows
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import ModuleCall

P = 1600
SHAPE = StepShape(world_size=32, micro_batch_size=1, num_micro_batches=3)
FULL, THREE, ONCE = 2 * P, 3, 1
"""Bytes of the block in bf16, and the counts of what is sent in each micro-batch and once per step."""


def gather(degree: int, cause, count: int = THREE) -> Message:
    return Message("all_gather", 1, degree, FULL, count, cause)


def reduction(degree: int) -> Message:
    return Message("reduce_scatter", 1, degree, FULL, THREE, "backward")


def boundary(operation, degree_from: int, degree_to: int, message_bytes: int) -> Message:
    """Sent as the last backward has the gradients."""
    return Message(operation, degree_from, degree_to, message_bytes, ONCE, "boundary", beside_backward=True)


def update(degree_from: int, degree_to: int, message_bytes: int) -> Message:
    """Sent before the next step's first forward needs the parameters."""
    return Message("all_gather", degree_from, degree_to, message_bytes, ONCE, "update", beside_forward=True)


@pytest.mark.parametrize(
    ("system", "strategy", "messages"),
    [
        ("DDP", Strategy(1, 1, 1, 1), [boundary("all_reduce", 1, 32, FULL)]),
        (
            "ZeRO-1",
            Strategy(1, 1, 1, 32),
            [
                boundary("reduce_scatter", 1, 32, FULL),
                update(1, 32, FULL),
            ],
        ),
        ("ZeRO-2", Strategy(1, 1, 32, 32), [reduction(32), update(1, 32, FULL)]),
        ("ZeRO-3", Strategy(32, 32, 32, 32), [gather(32, "forward"), gather(32, "backward"), reduction(32)]),
        ("ZeRO-3 kept", Strategy(32, 1, 32, 32), [gather(32, "forward"), reduction(32)]),
        ("ZeRO++ hpZ", Strategy(32, 8, 32, 32), [gather(32, "forward"), gather(8, "backward"), reduction(32)]),
        (
            "MiCS, HSDP",
            Strategy(8, 8, 8, 8),
            [
                gather(8, "forward"),
                gather(8, "backward"),
                reduction(8),
                boundary("all_reduce", 8, 32, FULL // 8),
            ],
        ),
        (
            "hybrid ZeRO-2",
            Strategy(1, 1, 8, 8),
            [
                reduction(8),
                boundary("all_reduce", 8, 32, FULL // 8),
                update(1, 8, FULL),
            ],
        ),
        (
            "AMSP 7B",
            Strategy(1, 1, 1, 8),
            [
                boundary("reduce_scatter", 1, 8, FULL),
                boundary("all_reduce", 8, 32, FULL // 8),
                update(1, 8, FULL),
            ],
        ),
        (
            "AMSP 13B",
            Strategy(4, 4, 4, 8),
            [
                gather(4, "forward"),
                gather(4, "backward"),
                reduction(4),
                boundary("reduce_scatter", 4, 8, FULL // 4),
                boundary("all_reduce", 8, 32, FULL // 8),
                update(4, 8, FULL // 4),
            ],
        ),
        (
            "PaRO NIG",
            Strategy(1, 1, 8, 32),
            [
                reduction(8),
                boundary("reduce_scatter", 8, 32, FULL // 8),
                update(1, 32, FULL),
            ],
        ),
        (
            "PaRO IIG, AMSP 30B",
            Strategy(8, 8, 8, 32),
            [
                gather(8, "forward"),
                gather(8, "backward"),
                reduction(8),
                boundary("reduce_scatter", 8, 32, FULL // 8),
                update(8, 32, FULL // 8),
            ],
        ),
        (
            "PaRO IGG",
            Strategy(8, 8, 32, 32),
            [
                gather(8, "forward"),
                gather(8, "backward"),
                reduction(32),
                update(8, 32, FULL // 8),
            ],
        ),
        (
            "PaRO ING",
            Strategy(8, 8, 1, 32),
            [
                gather(8, "forward"),
                gather(8, "backward"),
                boundary("reduce_scatter", 1, 32, FULL),
                update(8, 32, FULL // 8),
            ],
        ),
        (
            "Frontier",
            Strategy(2, 2, 8, 32),
            [
                gather(2, "forward"),
                gather(2, "backward"),
                reduction(8),
                boundary("reduce_scatter", 8, 32, FULL // 8),
                update(2, 32, FULL // 2),
            ],
        ),
    ],
)
def test_published_systems_send_what_their_papers_say(system: str, strategy: Strategy, messages: list[Message]) -> None:
    assert FSDP.refusal(one_block(P), (strategy,), SHAPE) is None
    assert FSDP.traffic(one_block(P), (strategy,), SHAPE) == tuple(messages)


@pytest.mark.parametrize(
    ("strategy", "parameters", "gradients", "optimizer_states"),
    [
        (Strategy(1, 1, 1, 1), 3200, 3200, 19200),
        (Strategy(1, 1, 1, 32), 3200, 3200, 600),
        (Strategy(1, 1, 32, 32), 3200, 100, 600),
        (Strategy(32, 32, 32, 32), 100, 100, 600),
        (Strategy(32, 8, 32, 32), 100, 100, 600),
        (Strategy(32, 1, 32, 32), 100, 100, 600),
        (Strategy(8, 8, 8, 8), 400, 400, 2400),
        (Strategy(2, 2, 8, 32), 1600, 400, 600),
        (Strategy(8, 8, 1, 32), 400, 3200, 600),
    ],
)
def test_at_rest_a_rank_holds_its_model_states(
    strategy: Strategy, parameters: int, gradients: int, optimizer_states: int
) -> None:
    found = FSDP.memory(one_block(P), (strategy,), SHAPE).at_rest
    assert replace(found, buffers=0) == Components(parameters, gradients, optimizer_states)


def test_blocks_gather_in_order_and_reduce_in_reverse() -> None:
    workload = hand_workload((100, 60, 60, 40), (0, 1, 1, 2))
    messages = FSDP.traffic(workload, (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 2))
    gathers = [(each.message_bytes, each.count) for each in messages if each.cause == "forward"]
    reductions = [each.message_bytes for each in messages if each.operation == "reduce_scatter"]
    assert gathers == [(200, 2), (120, 4), (80, 2)]
    assert reductions == [80, 120, 200]


def test_each_class_sends_by_its_own_degrees() -> None:
    workload = hand_workload((100, 60, 60), (0, 1, 1))
    messages = FSDP.traffic(workload, (Strategy(1, 1, 1, 1), Strategy(4, 4, 4, 4)), StepShape(4, 1, 1))
    assert messages == (
        Message("all_gather", 1, 4, 120, 2, "forward"),
        Message("all_gather", 1, 4, 120, 2, "backward"),
        Message("reduce_scatter", 1, 4, 120, 2, "backward"),
        boundary("all_reduce", 1, 4, 200),
    )


def test_recomputation_costs_no_traffic() -> None:
    plain, recomputed = (Strategy(4, 4, 4, 4, recompute) for recompute in ("none", "full"))
    shape = StepShape(4, 1, 2)
    assert FSDP.traffic(hand_workload(), (plain,) * 3, shape) == FSDP.traffic(hand_workload(), (recomputed,) * 3, shape)


def test_frozen_blocks_are_gathered_but_neither_reduced_nor_spread() -> None:
    workload = hand_workload((100, 60), (0, 1), frozen=(0,), differentiated=(1,))
    messages = FSDP.traffic(workload, (Strategy(2, 2, 2, 4),) * 2, StepShape(4, 1, 1))
    assert [(each.operation, each.message_bytes, each.cause) for each in messages] == [
        ("all_gather", 200, "forward"),
        ("all_gather", 120, "forward"),
        ("all_gather", 120, "backward"),
        ("reduce_scatter", 120, "backward"),
        ("reduce_scatter", 60, "boundary"),
        ("all_gather", 60, "update"),
    ]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Strategy(3, 3, 3, 3), "3 does not divide 32 ranks"),
        (Strategy(8, 8, 8, 4), "does not divide the optim degree 4"),
        (Strategy(8, 3, 8, 8), "secondary degree 3"),
        (Strategy(8, 8, 8, 8, offload="optimizer"), "offload"),
        (Strategy(1, 1, 8, 8, quantized_weights=True), "nothing to quantize"),
    ],
)
def test_what_the_ideal_schedule_has_no_words_for_is_refused(strategy: Strategy, words: str) -> None:
    assert words in (FSDP.refusal(one_block(P), (strategy,), SHAPE) or "")


def test_every_class_needs_a_strategy() -> None:
    assert "1 strategies for 3 classes" in (FSDP.refusal(hand_workload(), (Strategy(1, 1, 1, 1),), SHAPE) or "")


def gathered(secondary_degree: int) -> list[int]:
    """Gathered bytes in forward and backward of blocks of 200, 120, 120 and 80 bytes."""
    strategy = Strategy(4, secondary_degree, 4, 4)
    memory = FSDP.memory(hand_workload(), (strategy,) * 3, StepShape(4, 1, 1))
    return [each.gathered_parameters for each in memory.during_segment]


def test_the_running_and_the_next_block_are_gathered() -> None:
    assert gathered(4) == [320, 240, 200, 80, 200, 240, 320, 200]


def test_kept_blocks_stay_gathered_from_forward_to_backward() -> None:
    assert gathered(1) == [320, 440, 520, 520, 520, 440, 320, 200]


def test_gradients_are_held_whole_until_the_next_block_has_reduced_its_own() -> None:
    memory = FSDP.memory(hand_workload(), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1))
    backward = memory.during_segment[4:]
    assert [each.gradients for each in backward] == [80, 120, 120, 200]
    assert [each.buffers for each in backward] == [0, 80, 120, 120]


def test_as_a_block_begins_it_is_copied_out_of_its_flat_buffer_before_the_next_is_gathered() -> None:
    memory = FSDP.memory(hand_workload((200, 60, 60, 40)), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1))
    # 400 bytes twice, and not yet the 120 of the next.
    assert memory.entering_segment[0].gathered_parameters == 2 * 400
    assert memory.during_segment[0].gathered_parameters == 400 + 120


def test_as_a_block_ends_its_gradients_are_copied_into_one_message() -> None:
    memory = FSDP.memory(hand_workload(), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1))
    # The last one's, when all is sharded again.
    assert memory.during_update == Components(gradients=200, buffers=200)
    gloo = FSDP.memory(hand_workload(), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1, device="cpu"))
    assert [each.buffers for each in gloo.during_segment[4:]] == [0, 2 * 80, 2 * 120, 2 * 120]


def test_gradients_that_are_reduced_once_are_copied_too_where_states_are_sharded() -> None:
    memory = FSDP.memory(hand_workload(), (Strategy(1, 1, 1, 4),) * 3, StepShape(4, 1, 1, "fp32"))
    assert memory.at_rest.buffers == 400 + 240
    assert [each.buffers + 640 for each in memory.during_segment[4:]] == [0, 160, 240, 240]


def test_the_first_blocks_are_spread_between_two_steps_and_others_two_blocks_ahead() -> None:
    memory = FSDP.memory(hand_workload(), (Strategy(2, 2, 4, 4),) * 3, StepShape(4, 1, 1))
    assert memory.at_rest.buffers == 100 + 60
    assert [each.buffers + 160 for each in memory.during_segment[:4]] == [60, 40, 0, 0]


def test_unsharded_parameters_and_gradients_need_no_window() -> None:
    memory = FSDP.memory(hand_workload(), (Strategy(1, 1, 1, 1),) * 3, StepShape(4, 1, 1))
    assert all(each.gathered_parameters == each.buffers == 0 for each in memory.during_segment)
    # Autograd makes each tensor's gradient before it is added to what is kept.
    assert [each.gradients for each in memory.during_segment[4:]] == [80, 120, 120, 200]


def test_the_update_holds_fp32_slices_of_half_precision() -> None:
    held = FSDP.memory(hand_workload((40,) * 4), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1))
    assert held.during_update == Components(optimizer_step=4 * 40)
    own = FSDP.memory(hand_workload((40,) * 4), (Strategy(1, 1, 1, 1),) * 3, StepShape(4, 1, 1, "fp32"))
    assert own.during_update == Components()


def test_while_building_a_block_is_whole_in_fp32_beside_those_that_are_sharded() -> None:
    memory = FSDP.memory(hand_workload((100, 60, 60, 400)), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1))
    # The last is cast to bf16 beside parameters and gradients of the others.
    assert memory.init_peak_bytes == (2 + 2) * (25 + 15 + 15) + (4 + 2) * 400
    small = FSDP.memory(hand_workload((40,) * 100, (0,) * 100), (Strategy(4, 4, 4, 4),), StepShape(4, 1, 1))
    # All are sharded, and the optimizer has made its fp32 copies.
    assert small.init_peak_bytes == (2 + 2 + 4) * 10 * 100


@pytest.mark.parametrize(("param_degree", "gathered"), [(2, 6), (4, 8), (8, 8)])
def test_rows_are_padded_to_a_multiple_of_the_param_degree(param_degree: int, gathered: int) -> None:
    block = BlockSizes((Rows(5, 3, trainable=True),))
    assert block.gathered_elements(param_degree) == 3 * gathered
    assert block.shard_elements(param_degree) == 3 * gathered // param_degree


@pytest.mark.parametrize(
    ("param_degree", "optim_degree", "elements"), [(1, 8, 2), (2, 8, 3), (4, 8, 3), (8, 8, 3), (1, 1, 15)]
)
def test_shards_are_padded_to_a_multiple_of_their_slices(param_degree: int, optim_degree: int, elements: int) -> None:
    assert BlockSizes((Rows(5, 3, trainable=True),)).slice_elements(param_degree, optim_degree) == elements


def test_tied_parameters_are_gathered_once_and_held_from_their_first_use_to_their_last() -> None:
    untied = hand_workload((100, 60, 60, 40), (0, 1, 1, 2))
    head = ModuleCall("block.3", (3, 0))
    segments = tuple(replace(each, calls=(head,)) if each.block == 3 else each for each in untied.segments)
    tied, assignment, shape = replace(untied, segments=segments), (Strategy(4, 4, 4, 4),) * 3, StepShape(4, 1, 1)
    assert FSDP.traffic(tied, assignment, shape) == FSDP.traffic(untied, assignment, shape)
    held = [each.gathered_parameters for each in FSDP.memory(tied, assignment, shape).during_segment]
    # The embedding's 200 bytes stay through the forward and, with the head first, through the backward.
    assert held[:4] == [200 + 120, 200 + 240, 200 + 120 + 80, 200 + 80]
    assert held[4:] == [80 + 200 + 120, 200 + 240, 200 + 120, 200]
