"""AMSP's published throughput at its chosen degrees, recomputed."""

from __future__ import annotations

import pytest
from decoder import decoder, published

from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.step import step_time
from costmodels.strategy import StepShape, Strategy

NUM_TOKENS = 4096
A800 = DeviceSpeed(matmul_flop_per_s=215e12, memory_bytes_per_s=1.6e12, operator_launch_s=0.0, overlap=1.0)
"""Products at 69 % of the peak: calibrated on one row, 7B at M = 4."""
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


@pytest.mark.parametrize(("model", "micro_batches"), ROWS)
def test_tokens_per_second_at_the_chosen_degrees(model: str, micro_batches: str) -> None:
    shape_of_model, recompute = LLAMA[model]
    workload = decoder(**shape_of_model, vocab=32000, num_tokens=NUM_TOKENS, causal=0.5)
    assignment = (chosen(model, recompute),) * workload.num_classes
    num_micro_batches = int(micro_batches.removeprefix("M="))
    shape = StepShape(64, 1, num_micro_batches, "bf16", "adamw")
    messages = FSDP.traffic(workload, assignment, shape)
    time = step_time(workload, messages, assignment, shape, NETWORK, A800)
    table = published()["amsp_table5"]
    assert NUM_TOKENS * num_micro_batches / time.step_s == pytest.approx(
        float(table[model][micro_batches]), rel=float(table["tolerance"][micro_batches])
    )
