"""Shardplan's own answers."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from peers_question import Answer, Question

from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile
from planner import Job, plan
from planner.errors import DoesNotFit
from planner.model_graph import ModelGraph
from planner.plan import Plan, PlannedStrategy
from planner.read.source import read_source
from planner.trace import trace

TITLE = "Shardplan"
SOURCE = "docs/how_it_works.md"
SEARCHES = (
    "degrees of parameters, gradients and optimizer states, secondary degree, recomputation, offload, micro-batch"
)
ASKED = ("gpt2", "llama-7b", "llama-70b")


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns the plan, the one at twice its micro-batch, and the best of the other engine."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(question.config))
        started_s = time.perf_counter()
        source = read_source(folder, ())
        graph = trace(source, precision="bf16", device="cuda", sequence_length=question.sequence_length)
        traced_s = time.perf_counter() - started_s
    job = Job(global_batch_size=question.global_batch_size, sequence_length=question.sequence_length)
    profile = load(question.hardware, question.num_nodes)
    started_s = time.perf_counter()
    chosen = plan(graph, profile, job)
    planned_s = time.perf_counter() - started_s
    note = f"{chosen.solver.status}; traced in {traced_s:.0f} s, planned in {planned_s:.1f} s, alternatives included"
    other_engine = [each for each in chosen.alternatives if each.engine != chosen.engine]
    others = (
        Answer(f"{each.engine}: {each.name}, micro-batch {each.micro_batch_size}", each.peak_bytes, each.step_s)
        for each in other_engine[:1]
    )
    return (_answer(chosen, note), *_at_twice(graph, profile, job, chosen), *others)


def _at_twice(graph: ModelGraph, profile: HardwareProfile, job: Job, chosen: Plan) -> tuple[Answer, ...]:
    if chosen.job.num_micro_batches % 2:
        return ()
    given = job.model_copy(update={"micro_batch_size": 2 * chosen.job.micro_batch_size})
    try:
        return (_answer(plan(graph, profile, given), "the micro-batch was given"),)
    except DoesNotFit as error:
        nothing = f"micro-batch {given.micro_batch_size}: nothing fits"
        return (Answer(nothing, error.infeasible.needed_bytes, note="the least that is needed"),)


def _answer(chosen: Plan, note: str) -> Answer:
    predicted, solver = chosen.predicted, chosen.solver
    memory_bytes = predicted.memory.peak_bytes
    return Answer(
        f"{chosen.engine}: {_said(chosen)}", memory_bytes, predicted.step_s, solver.wall_s, solver.num_strategies, note
    )


def _said(chosen: Plan) -> str:
    several = len(chosen.strategies) > 1
    parts = [f"{len(each.blocks)} blocks " * several + _degrees(each) for each in chosen.strategies]
    job = chosen.job
    return f"{'; '.join(parts)}; micro-batch {job.micro_batch_size} x {job.num_micro_batches}"


def _degrees(strategy: PlannedStrategy) -> str:
    shown = f"(p,g,o) = ({strategy.param_degree},{strategy.grad_degree},{strategy.optim_degree})"
    kept = "" if strategy.secondary_degree == strategy.param_degree else f", s = {strategy.secondary_degree}"
    offloaded = "" if strategy.offload == "none" else f", {strategy.offload} offloaded"
    recomputed = "" if strategy.recompute == "none" else ", recomputed"
    return shown + kept + offloaded + recomputed
