"""Pairs of which some are tested by default, and the others among the slow tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def by_turns(rows: Sequence[Any], columns: Sequence[Any]) -> list[Any]:
    """Returns the parameters of all pairs: each row with a column by turns, and the rest marked slow."""
    return [
        pytest.param(row, column, marks=() if number % len(columns) == place else pytest.mark.slow)
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]


def some(values: Sequence[Any], *chosen: Any) -> list[Any]:
    """Returns the parameters of all values: those not chosen are marked slow."""
    return [pytest.param(value, marks=() if value in chosen else pytest.mark.slow, id=str(value)) for value in values]
