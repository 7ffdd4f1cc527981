"""Adapters on frozen models: what is trained, what is saved, and what has gradients and optimizer states."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from costmodels.deepspeed.frozen_inputs import frozen_input_bytes
from costmodels.strategy import Strategy
from costmodels.workload import Amount, Block, Parameter, Segment, Workload
from hw_profiles.load import load
from planner.job import Job
from planner.model_graph import ModelGraph, ModelSource
from planner.pipeline import estimate
from planner.trace import trace
from planner.verify.verify import verify

pytest.importorskip("peft")
ROOT = Path(__file__).parents[2]
LORA = ModelSource(spec=f"{ROOT}/tests/integration/lora_model.py:llama", kind="file")
ZOO = ROOT / "tests" / "zoo" / "adapters.py"
WIDTH, DEPTH, VOCABULARY, LENGTH, RANK = 128, 4, 512, 64, 8


@cache
def lora() -> ModelGraph:
    return trace(LORA, precision="fp32", device="cpu", sequence_length=LENGTH)


def test_only_adapters_and_what_is_saved_whole_are_trained() -> None:
    workload = lora().workload
    head = VOCABULARY * WIDTH
    queries, values = RANK * (WIDTH + WIDTH), RANK * (WIDTH + WIDTH // 2)
    assert workload.num_trainable_params == DEPTH * (queries + values) + head
    trained = [p.name for p in workload.parameters if p.trainable]
    assert all("lora_" in name or "modules_to_save" in name for name in trained)


def test_gradients_are_those_of_trained_parameters_once_each() -> None:
    workload = lora().workload
    completed = [index for segment in workload.segments for index in segment.gradients]
    assert sorted(completed) == [index for index, p in enumerate(workload.parameters) if p.trainable]


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("lora_all_linear", "dora", "lora_mixtral", "lora_t5", "ia3", "prompts", "prefix")
]


@pytest.mark.parametrize("name", ["lora_llama", "lora_vit", "first_layers_frozen", *SLOW])
def test_the_trace_of_adapters_is_a_real_step(name: str) -> None:
    found = verify(ModelSource(spec=f"{ZOO}:{name}", kind="file"), precision="fp32")
    for figure in ("num_params", "forward_flop", "backward_flop", "saved_bytes", "peak_bytes"):
        comparison = found.figure(figure)
        assert comparison.traced == comparison.real, figure


@pytest.mark.parametrize("degrees", [(1, 1, 1), (1, 1, 4), (1, 4, 4), (4, 4, 4)], ids=str)
def test_frozen_parameters_have_neither_gradients_nor_optimizer_states(degrees: tuple[int, int, int]) -> None:
    job = Job(global_batch_size=8, micro_batch_size=2, sequence_length=LENGTH, precision="fp32")
    plan = estimate(lora(), load("local-cpu", 1, 4), job, degrees)
    workload, parts = lora().workload, plan.predicted.memory.components
    p, _, o = degrees
    trained = workload.num_trainable_params
    assert parts.optimizer_states == pytest.approx((8 if o == 1 else 12) * trained / o, rel=0.01)
    assert parts.gradients <= 4 * trained * 1.1
    assert plan.predicted.memory.at_rest_bytes < 4 * workload.num_params / p + 20 * trained


def test_inputs_of_frozen_linears_that_nobody_keeps_are_counted_for_stage_3() -> None:
    found = sum((s.frozen_input_bytes for s in lora().workload.segments), Amount())
    # Of each layer, what goes into gate and up, and into down: the adapters keep the input of the queries, attention
    # its own output.
    assert found == Amount(0, DEPTH * 4 * LENGTH * (WIDTH + 3 * WIDTH))
    trained = ModelSource(spec=f"{ROOT}/examples/gpt.py:gpt", kind="file")
    graph = trace(trained, precision="fp32", device="cpu", sequence_length=LENGTH)
    assert not any(s.frozen_input_bytes != Amount() for s in graph.workload.segments)


def test_kept_inputs_pile_up_in_forward_and_go_in_backward() -> None:
    def segment(block: int, phase: str, num_bytes: int = 0) -> Segment:
        return Segment(block, phase, (), Amount(), Amount(), 1, frozen_input_bytes=Amount(0, num_bytes))  # type: ignore[arg-type]

    blocks = (Block("a", 0, (), True), Block("b", 0, (), True))
    segments = (segment(0, "forward", 5), segment(1, "forward", 7), segment(1, "backward"), segment(0, "backward"))
    workload = Workload((Parameter("w", (1,), False),), blocks, segments)
    plain, again = (Strategy(4, 4, 4, 4, recompute) for recompute in ("none", "full"))
    assert frozen_input_bytes(workload, (plain,), 2) == ((0, 10), (10, 24), (24, 10), (10, 0))
    assert frozen_input_bytes(workload, (again,), 2) == ((0, 0), (0, 0), (0, 14), (0, 10))
