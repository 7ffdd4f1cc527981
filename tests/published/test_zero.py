"""ZeRO's published memory and volumes, recomputed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from decoder import one_block, published

from costmodels.engine import Message
from costmodels.fsdp import FSDP
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


def stage(column: str, world_size: int) -> Strategy:
    """Returns the strategy of a column of the table."""
    n = world_size
    return {"os": Strategy(1, 1, 1, n), "os+g": Strategy(1, 1, n, n), "os+g+p": Strategy(n, n, n, n)}[column]


@pytest.mark.parametrize(("model", "ranks", "column", "printed"), CELLS)
def test_zero_table_1_to_its_last_printed_digit(model: str, ranks: int, column: str, printed: Decimal) -> None:
    states = model_state_bytes(
        one_block(int(float(model))), (stage(column, ranks),), StepShape(ranks, 1, 1, "fp16", "adam")
    )
    gigabytes = Decimal(states.total_bytes) / 10**9
    last_digit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    assert abs(gigabytes - printed) < last_digit


def test_every_cell_of_the_table_is_checked() -> None:
    assert len(CELLS) == (6 + 5 + 5) * 3


def entering_bytes(message: Message) -> float:
    """Bytes that a bandwidth-optimal collective brings into one rank."""
    size = message.degree_to // message.degree_from
    return (2 if message.operation == "all_reduce" else 1) * message.total_bytes * (size - 1) / size


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("ddp", Strategy(1, 1, 1, 1)),
        ("stage1", Strategy(1, 1, 1, 1024)),
        ("stage2", Strategy(1, 1, 1024, 1024)),
        ("stage3", Strategy(1024, 1024, 1024, 1024)),
    ],
)
def test_zero_volumes_in_units_of_the_model(name: str, strategy: Strategy) -> None:
    num_params = 1024 * 1000
    messages = FSDP.traffic(one_block(num_params), (strategy,), StepShape(1024, 1, 1, "fp16", "adam"))
    volume = sum(map(entering_bytes, messages)) / (2 * num_params)
    assert volume == pytest.approx(float(published()["zero_volume"][name]), abs=3 / 1024)
