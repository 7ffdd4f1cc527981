"""ZeRO's published memory and volumes, recomputed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from network_anchors import Anchor
from volumes import CELLS, stage_volumes, state_gigabytes


@pytest.mark.parametrize(("model", "ranks", "column", "printed"), CELLS)
def test_zero_table_1_to_its_last_printed_digit(model: str, ranks: int, column: str, printed: Decimal) -> None:
    last_digit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    assert abs(state_gigabytes(model, ranks, column) - printed) < last_digit


def test_every_cell_of_the_table_is_checked() -> None:
    assert len(CELLS) == (6 + 5 + 5) * 3


@pytest.mark.parametrize("anchor", stage_volumes(), ids=lambda anchor: anchor.figure)
def test_zero_volumes_in_units_of_the_model(anchor: Anchor) -> None:
    assert anchor.predicted == pytest.approx(anchor.published, abs=3 / 1024)
