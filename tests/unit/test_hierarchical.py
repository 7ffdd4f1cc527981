"""Collectives that go level by level: their messages, and when a plan sends them so."""

from __future__ import annotations

from dataclasses import replace

from costmodels.assign import assign
from costmodels.engine import Message
from costmodels.fsdp import FSDP
from costmodels.fsdp.hierarchical import stages
from costmodels.schedule import messages_of
from costmodels.strategy import Strategy
from hw_profiles.load import load
from planner.choose.candidate import Candidate
from planner.choose.level_by_level import level_by_level
from planner.choose.setting import Setting, setting
from planner.evaluate import evaluate
from planner.job import Job
from planner.model_graph import ModelSource
from planner.trace import trace


def asked(width: int) -> Setting:
    """Returns the question of a small model on 64 nodes of 8."""
    source = ModelSource(
        spec="examples/gpt.py:gpt", kind="file", arguments={"width": str(width), "depth": "2", "vocab": "1024"}
    )
    graph = trace(source, precision="bf16", device="cuda")
    return setting(graph, load("dgx-h100", 64), Job(global_batch_size=512))


def chosen(question: Setting, strategy: Strategy) -> Candidate:
    """Returns a choice of one strategy for all, sent at once."""
    workload, assignment = assign(question.workload, dict.fromkeys(range(len(question.workload.blocks)), strategy))
    shape, length = question.shapes[0], question.graph.sequence_length
    predicted = evaluate(workload, FSDP, question.machine, assignment, shape, question.budget_bytes, length)
    return Candidate("one for all", "fsdp", workload, assignment, shape, predicted)


def parts(message: Message, sizes: tuple[int, ...]) -> list[tuple[str, int, int, int]]:
    """Returns what a message of 2-byte elements is sent as."""
    return [
        (each.operation, each.degree_from, each.degree_to, each.message_bytes) for each in stages(message, sizes, 2)
    ]


def test_a_gather_goes_inwards_and_a_reduction_outwards() -> None:
    gather = Message("all_gather", 1, 64, 6400, 3, "forward")
    assert parts(gather, (2, 4, 8)) == [
        ("all_gather", 8, 64, 800),
        ("all_gather", 2, 8, 3200),
        ("all_gather", 1, 2, 6400),
    ]
    reduction = replace(gather, operation="reduce_scatter", degree_from=4)
    assert parts(reduction, (2, 4, 8)) == [("reduce_scatter", 4, 8, 6400), ("reduce_scatter", 8, 64, 3200)]
    assert {each.count for each in stages(gather, (2, 4, 8), 2)} == {3}


def test_an_all_reduce_pads_what_its_inner_levels_do_not_divide() -> None:
    assert parts(Message("all_reduce", 2, 16, 10, 1, "boundary"), (8, 2)) == [
        ("reduce_scatter", 2, 8, 16),
        ("all_reduce", 8, 16, 4),
        ("all_gather", 2, 8, 16),
    ]


def test_a_message_within_one_level_is_sent_at_once() -> None:
    for message in (Message("all_gather", 2, 8, 80, 1, "forward"), Message("all_reduce", 8, 32, 80, 1, "boundary")):
        assert list(stages(message, (8, 4), 2)) == [message]
        assert list(stages(replace(message, degree_from=1, degree_to=32), (), 2)) != [message]


def test_between_stages_the_part_of_the_innermost_level_is_held() -> None:
    question = asked(64)
    at_once, staged = (chosen(question, Strategy(512, 512, 512, 512, hierarchical=each)) for each in (False, True))
    largest_bytes = max(each.message_bytes for each in FSDP.traffic(staged.workload, staged.assignment, staged.shape))
    more_bytes = staged.predicted.memory.peak_bytes - at_once.predicted.memory.peak_bytes
    assert more_bytes == 2 * largest_bytes // 8


def test_the_schedule_sends_the_traffic() -> None:
    question = asked(64)
    candidate = chosen(question, Strategy(512, 512, 512, 512, hierarchical=True))
    counts: dict[Message, int] = {}
    for message, repeats in messages_of(FSDP.schedule(candidate.workload, candidate.assignment, candidate.shape)):
        kind = replace(message, count=1)
        counts[kind] = counts.get(kind, 0) + repeats
    sent = FSDP.traffic(candidate.workload, candidate.assignment, candidate.shape)
    assert counts == {replace(each, count=1): each.count for each in sent}
    assert {(each.degree_from, each.degree_to) for each in sent} == {(1, 8), (8, 512)}


def test_small_blocks_over_many_nodes_go_level_by_level_and_large_ones_at_once() -> None:
    everywhere = Strategy(512, 512, 512, 512)
    small = asked(64)
    at_once = chosen(small, everywhere)
    staged = level_by_level(small, at_once)
    assert all(each.hierarchical for each in staged.assignment)
    assert staged.predicted.step_s < 0.7 * at_once.predicted.step_s
    large = asked(8192)
    at_once = chosen(large, everywhere)
    found = level_by_level(large, at_once)
    assert found.predicted.step_s <= at_once.predicted.step_s
    layer = next(block for block in found.workload.blocks if block.name == "layers.0")
    assert not found.assignment[layer.block_class].hierarchical


def test_a_choice_inside_nodes_stays_as_it_is() -> None:
    question = asked(64)
    inside = chosen(question, Strategy(8, 8, 8, 8))
    shape = replace(inside.shape, world_size=8)
    assert FSDP.traffic(inside.workload, inside.assignment, shape) == FSDP.traffic(
        inside.workload, tuple(replace(each, hierarchical=True) for each in inside.assignment), shape
    )
