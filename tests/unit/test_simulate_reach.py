"""On more ranks than messages of the usual sizes are made for, DeepSpeed's are fewer and larger."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import GPT2_XL, transformer_graph

from costmodels.deepspeed.engine import DeepSpeed
from costmodels.deepspeed.knobs import (
    PERSISTENT_ELEMENTS,
    PREFETCH_ELEMENTS,
    REACH_RANKS,
    REDUCE_BUCKET_ELEMENTS,
    choose_knobs,
)
from costmodels.memory import step_memory
from costmodels.strategy import StepShape, Strategy
from hw_profiles.load import load
from planner.choose.play import play
from planner.machine import machine

GIB = 1024**3
WORKLOAD = transformer_graph(GPT2_XL).workload
LARGEST_BLOCK = max(
    sum(WORKLOAD.parameters[index].num_elements for index in block.parameters) for block in WORKLOAD.blocks
)


def knobs_of(world_size: int):
    strategies = (Strategy(world_size, world_size, world_size, world_size),) * WORKLOAD.num_classes
    return choose_knobs(WORKLOAD, strategies, StepShape(world_size, 1, 1))


@pytest.mark.parametrize("world_size", [2, 64, REACH_RANKS])
def test_within_reach_sizes_are_the_same_for_all(world_size):
    knobs = knobs_of(world_size)
    assert knobs.reduce_bucket_size == REDUCE_BUCKET_ELEMENTS
    assert knobs.prefetch_bucket_size == PREFETCH_ELEMENTS
    assert knobs.param_persistence_threshold == PERSISTENT_ELEMENTS


def test_beyond_reach_they_grow_with_the_ranks_as_far_as_the_model_goes_and_nothing_persists():
    twice, many = knobs_of(2 * REACH_RANKS), knobs_of(100 * REACH_RANKS)
    assert twice.reduce_bucket_size == 2 * REDUCE_BUCKET_ELEMENTS
    assert twice.prefetch_bucket_size == LARGEST_BLOCK < 2 * PREFETCH_ELEMENTS
    assert many.reduce_bucket_size == WORKLOAD.num_trainable_params // 8 // 2 * 2
    assert many.reduce_bucket_size % 2 == 0
    assert twice.param_persistence_threshold == many.param_persistence_threshold == 0


@pytest.mark.parametrize("num_micro_batches", [1, 8])
def test_larger_messages_are_faster_there_and_take_little_memory(num_micro_batches):
    on = machine(load("dgx-a100-80gb", 512), "bf16")
    world_size = on.world_size
    assignment = (Strategy(world_size, world_size, world_size, world_size),) * WORKLOAD.num_classes
    shape = StepShape(world_size, 4, num_micro_batches)
    grown = choose_knobs(WORKLOAD, assignment, shape)
    usual = replace(
        grown,
        reduce_bucket_size=REDUCE_BUCKET_ELEMENTS,
        prefetch_bucket_size=PREFETCH_ELEMENTS,
        param_persistence_threshold=PERSISTENT_ELEMENTS,
    )
    steps, peaks = [], []
    for knobs in (grown, usual):
        engine = DeepSpeed(knobs)
        steps.append(play(WORKLOAD, engine, on, assignment, shape).step_s)
        held = engine.memory(WORKLOAD, assignment, shape)
        peaks.append(step_memory(WORKLOAD, held, assignment, shape).peak_bytes)
    assert steps[0] < 0.95 * steps[1]
    assert peaks[0] - peaks[1] < GIB
