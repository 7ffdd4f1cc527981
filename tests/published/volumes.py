"""What ZeRO and ZeRO++ published of memory and of messages, beside the formulas of the fsdp engine's cost model."""

from __future__ import annotations

from decimal import Decimal

from decoder import one_block, published
from network_anchors import Anchor

from costmodels.engine import Message
from costmodels.fsdp import FSDP
from costmodels.quantized import quantized_gather, quantized_reduce
from costmodels.states import model_state_bytes
from costmodels.strategy import StepShape, Strategy

TABLE = published()["zero_table1"]
MODELS = ("7.5e9", "128e9", "1e12")
CELLS = [
    (model, int(ranks), column, printed)
    for model in MODELS
    for ranks, row in TABLE[model].items()
    for column, printed in zip(TABLE["columns"], row, strict=True)
]
WORLD_SIZE, RANKS_PER_NODE = 1024, 16
NUM_PARAMS = WORLD_SIZE * 1000
STAGES = {
    "ddp": Strategy(1, 1, 1, 1),
    "stage1": Strategy(1, 1, 1, WORLD_SIZE),
    "stage2": Strategy(1, 1, WORLD_SIZE, WORLD_SIZE),
    "stage3": Strategy(*[WORLD_SIZE] * 4),
}


def stage(column: str, world_size: int) -> Strategy:
    """Returns the strategy of a column of ZeRO's table."""
    n = world_size
    return {"os": Strategy(1, 1, 1, n), "os+g": Strategy(1, 1, n, n), "os+g+p": Strategy(n, n, n, n)}[column]


def state_gigabytes(model: str, ranks: int, column: str) -> Decimal:
    """Returns the model states of a rank in 10^9 bytes."""
    shape = StepShape(ranks, 1, 1, "fp16", "adam")
    states = model_state_bytes(one_block(int(float(model))), (stage(column, ranks),), shape)
    return Decimal(states.total_bytes) / 10**9


def states() -> tuple[Anchor, ...]:
    """Returns ZeRO's Table 1 and Figure 1."""
    return tuple(
        Anchor("", f"{model} parameters, {ranks} ranks, {column}", "GB", float(state_gigabytes(*cell)), float(printed))
        for *cell, printed in CELLS
        for model, ranks, column in (cell,)
    )


def entering_bytes(message: Message) -> float:
    """Bytes that a bandwidth-optimal collective brings into one rank."""
    size = message.degree_to // message.degree_from
    return (2 if message.operation == "all_reduce" else 1) * message.total_bytes * (size - 1) / size


def stage_volumes() -> tuple[Anchor, ...]:
    """Returns what a rank of ZeRO's stages receives in a step, in units of the model."""
    found = []
    for name, strategy in STAGES.items():
        messages = FSDP.traffic(one_block(NUM_PARAMS), (strategy,), StepShape(WORLD_SIZE, 1, 1, "fp16", "adam"))
        volume = sum(map(entering_bytes, messages)) / (2 * NUM_PARAMS)
        found.append(Anchor("", name, "models", volume, float(published()["zero_volume"][name])))
    return tuple(found)


def crossing_bytes(strategy: Strategy, operation: str, cause: str) -> float:
    """Bytes that enter a node, over the nodes that could send them, for messages of one cause."""
    messages = FSDP.traffic(one_block(NUM_PARAMS), (strategy,), StepShape(WORLD_SIZE, 1, 1, "fp16", "adam"))
    return sum(
        message.total_bytes
        for message in messages
        if (message.operation, message.cause) == (operation, cause) and message.degree_to > RANKS_PER_NODE
    )


def crossing_volumes() -> tuple[Anchor, ...]:
    """Returns what ZeRO-3 and ZeRO++ send between nodes, in units of the fp16 model; scales of blocks included."""
    zero_3, hpz = Strategy(*[WORLD_SIZE] * 4), Strategy(WORLD_SIZE, RANKS_PER_NODE, WORLD_SIZE, WORLD_SIZE)
    side = 16 * WORLD_SIZE
    gather, reduction = (
        quantized_gather(side**2, WORLD_SIZE),
        quantized_reduce((side, side), RANKS_PER_NODE, WORLD_SIZE),
    )
    assert gather is not None
    assert reduction is not None
    model_bytes, square_bytes = 2 * NUM_PARAMS, 2 * side**2
    predicted = {
        ("zero3", "forward_all_gather"): crossing_bytes(zero_3, "all_gather", "forward") / model_bytes,
        ("zero3", "backward_all_gather"): crossing_bytes(zero_3, "all_gather", "backward") / model_bytes,
        ("zero3", "reduce_scatter"): crossing_bytes(zero_3, "reduce_scatter", "backward") / model_bytes,
        ("zeropp", "forward_all_gather"): gather.message_bytes / square_bytes,
        ("zeropp", "backward_all_gather"): crossing_bytes(hpz, "all_gather", "backward") / model_bytes,
        ("zeropp", "reduce_scatter"): RANKS_PER_NODE * reduction[1].message_bytes / square_bytes,
    }
    return tuple(
        Anchor(system, figure.replace("_", " "), "models", volume, float(published()["zeropp_volume"][system][figure]))
        for (system, figure), volume in predicted.items()
    )


def tutorial_memory() -> tuple[Anchor, ...]:
    """Returns what the ZeRO++ tutorial's logs say is resident, and what a secondary copy adds to the peak."""
    logged, shape = published()["zeropp_tutorial"], StepShape(64, 1, 1, "fp16", "adam")
    model = one_block(18_440_000_000)
    resident = model_state_bytes(model, (Strategy(*[64] * 4),), shape).total_bytes
    secondary = model_state_bytes(model, (Strategy(64, 16, 64, 64),), shape).secondary
    grown = float(logged["zeropp"]["max_allocated_MiB"] - logged["zero3"]["max_allocated_MiB"])
    return (
        Anchor("ZeRO-3", "allocated", "MiB", resident / 2**20, float(logged["zero3"]["allocated_MiB"])),
        Anchor("ZeRO++ less ZeRO-3", "most allocated", "MiB", secondary / 2**20, grown),
    )
