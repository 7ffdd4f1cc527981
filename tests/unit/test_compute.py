"""Seconds of compute against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_workload import hand_workload, one_block

from costmodels.compute import (
    ClassCompute,
    Computed,
    class_compute,
    class_update_ns,
    compute_time,
    mfu,
    model_flop,
    overlappable_ns,
    segment_ns,
    update_width,
)
from costmodels.network import DeviceSpeed
from costmodels.states import state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount

SPEED = DeviceSpeed(matmul_flop_per_s=1e9, memory_bytes_per_s=1e9, operator_launch_s=1e-9, overlap=1.0)
ONE_PER_SECOND = DeviceSpeed(1.0, 1.0, 1.0, 1.0)
DDP = Strategy(1, 1, 1, 1)


@pytest.mark.parametrize(
    ("flop", "product_io_bytes", "io_bytes", "num_operators", "expected_s"),
    [
        (900, 20, 10, 1, 910),
        (20, 900, 10, 1, 910),
        (10, 10, 900, 1, 910),
        (10, 10, 10, 900, 900),
        (0, 0, 0, 0, 0),
    ],
)
def test_a_segment_runs_its_products_and_then_the_rest_unless_launches_take_longer(
    flop: int, product_io_bytes: int, io_bytes: int, num_operators: int, expected_s: int
) -> None:
    workload = hand_workload((8,), (0,), flop=flop, io_bytes=io_bytes, num_operators=num_operators)
    segment = replace(workload.segments[0], product_io_bytes=Amount(0, product_io_bytes))
    assert segment_ns(segment, 1, ONE_PER_SECOND) == expected_s * 10**9


def test_a_fraction_of_a_nanosecond_is_rounded_up() -> None:
    workload = hand_workload((8,), (0,), flop=10, io_bytes=0, num_operators=0)
    assert segment_ns(workload.segments[0], 1, replace(SPEED, matmul_flop_per_s=3e9)) == 4


def test_products_grow_with_the_micro_batch_and_launches_do_not() -> None:
    workload = hand_workload((8,), (0,), flop=100, io_bytes=1, num_operators=150)
    assert [segment_ns(workload.segments[0], size, ONE_PER_SECOND) for size in (1, 2, 3)] == [
        150 * 10**9,
        202 * 10**9,
        303 * 10**9,
    ]


def test_classes_sum_over_their_blocks_and_only_recomputable_ones_can_be_recomputed() -> None:
    assert class_compute(hand_workload(), 1, SPEED) == (
        ClassCompute(all_of(1100), all_of(2200), all_of(0)),
        ClassCompute(all_of(2200), all_of(4400), all_of(2200)),
        ClassCompute(all_of(1100), all_of(2200), all_of(0)),
    )


def all_of(duration_ns: int) -> Computed:
    return Computed(duration_ns, duration_ns)


def test_what_overlaps_is_the_same_however_blocks_are_classed() -> None:
    # 1100 ns each, and a third of it rounded down.
    together = hand_workload((8,) * 4, (0, 1, 1, 2))
    apart = replace(
        together, blocks=tuple(replace(block, block_class=number) for number, block in enumerate(together.blocks))
    )
    speed = replace(SPEED, overlap=0.333)
    shape = StepShape(1, 1, 3)
    assert compute_time(together, (DDP,) * 3, shape, speed) == compute_time(apart, (DDP,) * 4, shape, speed)


def test_recomputation_adds_the_forward_of_recomputable_blocks_once_per_micro_batch() -> None:
    shape = StepShape(1, 1, 3)
    none = compute_time(hand_workload(), (DDP,) * 3, shape, SPEED)
    full = compute_time(hand_workload(), (replace(DDP, recompute="full"),) * 3, shape, SPEED)
    assert (none.forward_ns, none.backward_ns) == (3 * 4400, 3 * 8800)
    assert (full.forward_ns, full.backward_ns) == (3 * 4400, 3 * (8800 + 2200))
    assert full.update_ns == none.update_ns


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected_bytes"),
    [
        ("bf16", "adamw", 2 + 2 * 12 + 2),
        ("fp32", "adamw", 4 + 2 * 8 + 4 + 4),
        ("fp32", "sgd", 4 + 4 + 4),
        ("bf16", "sgd", 2 + 2 * 4 + 2),
    ],
)
def test_an_update_reads_gradients_and_passes_over_the_states(precision, optimizer, expected_bytes: int) -> None:
    assert update_width(state_widths(precision, optimizer)) == expected_bytes


def test_an_update_touches_a_shard_of_the_trained_parameters() -> None:
    workload = hand_workload((1000, 90), (0, 0), frozen=(0,))
    assert class_update_ns(workload, 0, Strategy(1, 1, 1, 4), StepShape(4, 1, 1), SPEED) == 28 * 23


def test_mfu_counts_the_flop_of_the_model_and_no_recomputation() -> None:
    workload = one_block(8)
    assert model_flop(workload, 4) == 4 * 3000
    assert mfu(workload, StepShape(1, 4, 2), step_s=1.0, peak_flop_per_s=48000.0) == 0.5


def test_half_an_overlap_leaves_half_of_a_duration_for_communication() -> None:
    assert overlappable_ns(1001, replace(SPEED, overlap=0.5)) == 500
    assert overlappable_ns(1001, replace(SPEED, overlap=0.0)) == 0
    assert overlappable_ns(1001, SPEED) == 1001
