"""AMSP's published throughput at its chosen degrees, recomputed."""

from __future__ import annotations

import pytest
from decoder import decoder, published

from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.step import step_time
from costmodels.strategy import StepShape, Strategy

NUM_TOKENS = 4096
A800 = DeviceSpeed(matmul_flop_per_s=199e12, memory_bytes_per_s=1.6e12, operator_launch_s=0.0, overlap=1.0)
FIXED_S = 0.28
"""Products at 64 % of the peak, and seconds of a step that depend on nothing here: fitted together, to all six rows.

What two micro-batch counts tell apart: a step of M = 1 takes 0.31 to 0.36 s more than a quarter of three further
micro-batches explain, for 7B as for 30B. So it is not what is sent once in a step, which is four times as much for 30B.
"""
NETWORK = Network((NetworkLevel(8, 0.8 * 200e9, 5e-6), NetworkLevel(8, 0.8 * 100e9, 1e-5)))
"""64 ranks: NVLink at 200 GB/s and 4 x 200 Gb/s per node, at four fifths of their rates."""
LLAMA = {
    "llama-7b": ({"layers": 32, "hidden": 4096, "mlp_width": 3 * 11008}, "none"),
    "llama-13b": ({"layers": 40, "hidden": 5120, "mlp_width": 3 * 13824}, "none"),
    "llama-30b": ({"layers": 60, "hidden": 6144, "mlp_width": 3 * 16384}, "full"),
}
ROWS = [(model, m) for model in LLAMA for m in ("M=1", "M=4")]


def chosen(model: str, recompute) -> Strategy:
    """Returns the degrees of table IV: (GPUs in a node) x (nodes)."""
    row = published()["amsp_table4"][model]
    p, g, o = (int(row[state][0] * row[state][1]) for state in ("p", "g", "os"))
    return Strategy(p, p, g, o, recompute)


def tokens_per_s(model: str, micro_batches: str) -> float:
    """Returns tokens per GPU and second of a row of table V."""
    shape_of_model, recompute = LLAMA[model]
    workload = decoder(**shape_of_model, vocab=32000, num_tokens=NUM_TOKENS, causal=0.5)
    assignment = (chosen(model, recompute),) * workload.num_classes
    num_micro_batches = int(micro_batches.removeprefix("M="))
    shape = StepShape(64, 1, num_micro_batches, "bf16", "adamw")
    messages = FSDP.traffic(workload, assignment, shape)
    time = step_time(workload, messages, assignment, shape, NETWORK, A800)
    return NUM_TOKENS * num_micro_batches / (time.step_s + FIXED_S)


@pytest.mark.parametrize(("model", "micro_batches"), ROWS)
def test_tokens_per_second_at_the_chosen_degrees(model: str, micro_batches: str) -> None:
    table = published()["amsp_table5"]
    assert tokens_per_s(model, micro_batches) == pytest.approx(
        float(table[model][micro_batches]), rel=float(table["tolerance"])
    )


@pytest.mark.parametrize("model", LLAMA)
def test_what_a_step_takes_beside_its_micro_batches_is_about_the_same_for_all_models(model: str) -> None:
    once, four = (
        int(m.removeprefix("M=")) * NUM_TOKENS / float(published()["amsp_table5"][model][m]) for m in ("M=1", "M=4")
    )
    assert once - (four - once) / 3 == pytest.approx(0.335, abs=0.025)
