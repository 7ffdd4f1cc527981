"""Times that were published of networks, beside those that a shipped machine and the collective model give.

Two runs. **ZeRO++ tutorial**: 18B on 4 DGX-2 over one 100 Gb/s port each; the machine is `dgx2-v100-32gb` with its
network at one port, and nothing else is changed. **InternEvo**: 7B with optimizer states over all ranks, (1,1,N), and
inside the node, (1,1,8), on `hgx-a100-80gb-roce4`; compute is fitted at 8 GPUs alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoder import published

from costmodels.collectives import collective_time
from costmodels.engine import Operation
from costmodels.network import Network
from costmodels.quantized import quantized_gather, quantized_reduce, quantized_time
from hw_profiles.load import load
from planner.machine import Machine, machine

TUTORIAL = published()["zeropp_tutorial"]
INTERNEVO = published()["internevo_zero1"]
PORT_BYTES_PER_S = 12.5e9
"""100 Gb/s."""
NUM_NODES, RANKS_PER_NODE, NUM_TOKENS = 4, 16, 512
WORLD_SIZE = NUM_NODES * RANKS_PER_NODE
_WIDTH = int(published()["zeropp_throughput"]["shape_18B"]["hidden"])
_LAYERS = int(published()["zeropp_throughput"]["shape_18B"]["layers"])
_LAYER = ((3 * _WIDTH, _WIDTH), (_WIDTH, _WIDTH), (4 * _WIDTH, _WIDTH), (_WIDTH, 4 * _WIDTH))
SHAPES = ((50304, _WIDTH), *_LAYER * _LAYERS)
"""Matrices of the 18B model; what else it has is less than a ten-thousandth."""
NUM_PARAMS = sum(rows * columns for rows, columns in SHAPES)


@dataclass(frozen=True)
class Anchor:
    """One published figure and its prediction, in the same unit."""

    run: str
    figure: str
    unit: str
    predicted: float
    published: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.published - 1


def one_port() -> Machine:
    """Returns four DGX-2 whose network is one port of 100 Gb/s each."""
    profile = load("dgx2-v100-32gb", NUM_NODES)
    network = profile.levels[-1].model_copy(update={"unit_bytes_per_s": PORT_BYTES_PER_S})
    return machine(profile.model_copy(update={"levels": (*profile.levels[:-1], network)}), "fp16")


def forward_compute_s() -> float:
    """Returns the arithmetic of a forward pass; a backward pass with recomputation has three times as much."""
    return 2 * NUM_PARAMS * NUM_TOKENS / one_port().speed.matmul_flop_per_s


def zero_3() -> tuple[Anchor, ...]:
    """Forward gathers each parameter once; backward gathers it again and reduces its gradient. Compute hides."""
    gather_s = _all_matrices_s("all_gather", WORLD_SIZE)
    reduce_s = _all_matrices_s("reduce_scatter", WORLD_SIZE)
    return (
        _tutorial("ZeRO-3", "forward", gather_s, "zero3"),
        _tutorial("ZeRO-3", "backward", gather_s + reduce_s, "zero3"),
    )


def zeropp() -> tuple[Anchor, ...]:
    """Forward gathers int8; backward gathers inside the node, and reduces int4 in two hops. See `zeropp_backward_s`."""
    network_s, arithmetic_s = zeropp_backward_s()
    return (
        _tutorial("ZeRO++", "forward", zeropp_forward_s(), "zeropp"),
        _tutorial("ZeRO++", "backward", network_s + arithmetic_s, "zeropp"),
    )


def zeropp_forward_s() -> float:
    """Returns the all-gather of int8 parameters with their scales, quantizing included; compute hides behind it."""
    on = one_port()
    gathers = [quantized_gather(rows * columns, WORLD_SIZE) for rows, columns in SHAPES]
    assert None not in gathers
    return sum(quantized_time([each], on.network, on.speed).seconds for each in gathers)


def zeropp_backward_s() -> tuple[float, float]:
    """Returns the traffic of the backward pass, quantizing included, and its arithmetic: the log has their sum.

    The traffic alone would be far less than was logged, and what is missing is what the recomputed forward and the
    backward take: the run did not hide one behind the other.
    """
    on = one_port()
    reductions = [quantized_reduce(shape, RANKS_PER_NODE, WORLD_SIZE) for shape in SHAPES]
    assert None not in reductions
    reduce_s = sum(quantized_time(hops, on.network, on.speed).seconds for hops in reductions)
    return _all_matrices_s("all_gather", RANKS_PER_NODE) + reduce_s, 3 * forward_compute_s()


def _all_matrices_s(operation: Operation, degree: int) -> float:
    network = one_port().network
    return sum(collective_time(operation, 1, degree, 2 * rows * columns, network).seconds for rows, columns in SHAPES)


def _tutorial(system: str, phase: str, seconds: float, key: str) -> Anchor:
    logged_s = float(TUTORIAL[key][f"{phase}_ms"]) / 1e3
    return Anchor("ZeRO++ tutorial", f"{phase} of {system}", "s", seconds, logged_s)


def internevo() -> tuple[Anchor, ...]:
    """Tokens per GPU and second of both runs at every size, and the growth of their difference with the ranks."""
    anchors = []
    for key, degrees in (("os_node", "(1,1,8)"), ("os_world", "(1,1,N)")):
        for gpus, tokens_per_s in zip(INTERNEVO["gpus"], INTERNEVO[key], strict=True):
            predicted = TOKENS_PER_STEP / step_s(int(gpus), spread_over=8 if key == "os_node" else int(gpus))
            anchors.append(
                Anchor("InternEvo 7B", f"{degrees} at {gpus} GPUs", "tokens/s", predicted, float(tokens_per_s))
            )
    return (*anchors, slope())


TOKENS_PER_STEP = int(INTERNEVO["tokens_per_gpu_and_step"])
MODEL_BYTES = 2 * int(INTERNEVO["num_params"])


def roce(gpus: int) -> Network:
    """Returns the links of InternEvo's cluster."""
    return machine(load("hgx-a100-80gb-roce4", gpus // 8), "bf16").network


def update_s(gpus: int, spread_over: int) -> float:
    """Returns the update's traffic: each rank of the optimizer's group broadcasts its shard of the parameters."""
    shard_bytes = MODEL_BYTES // spread_over
    return spread_over * collective_time("broadcast", 1, spread_over, shard_bytes, roce(gpus)).seconds


def compute_s() -> float:
    """Returns what is left of a published step at 8 GPUs after its update: fitted there, used at every size."""
    return TOKENS_PER_STEP / float(INTERNEVO["os_node"][0]) - update_s(8, 8)


def step_s(gpus: int, spread_over: int) -> float:
    """Returns a step: compute, what the last backward pass does not hide of the gradients' all-reduce, the update."""
    reduce_s = collective_time("all_reduce", 1, gpus, MODEL_BYTES, roce(gpus)).seconds
    last_backward_s = compute_s() / 4 * 2 / 3
    return compute_s() + max(0.0, reduce_s - last_backward_s) + update_s(gpus, spread_over)


def anchors() -> tuple[Anchor, ...]:
    """Returns all of them."""
    return (*zero_3(), *zeropp(), *internevo())


def slope() -> Anchor:
    """Returns the growth per rank of the seconds that (1,1,N) takes longer than (1,1,8), between 8 and 512 ranks."""

    def extra_s(index: int) -> float:
        world, node = (float(INTERNEVO[key][index]) for key in ("os_world", "os_node"))
        return TOKENS_PER_STEP / world - TOKENS_PER_STEP / node

    first, last = INTERNEVO["gpus"].index(8), INTERNEVO["gpus"].index(512)
    published_s = (extra_s(last) - extra_s(first)) / (512 - 8)
    predicted_s = (step_s(512, 512) - step_s(512, 8)) / (512 - 8)  # at 8 ranks the two are the same
    return Anchor("InternEvo 7B", "(1,1,N) over (1,1,8), per rank", "ms", predicted_s * 1e3, published_s * 1e3)
