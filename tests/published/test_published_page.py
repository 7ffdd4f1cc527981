"""The page of published decisions has what is predicted now, of the models that need no trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from decisions import Anchor
from decisions_frontier import ratios
from decisions_internevo import crossover, curves

PAGE = (Path(__file__).parents[2] / "docs" / "published.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("anchor", [*curves(), *crossover(), *ratios()], ids=lambda anchor: anchor.figure)
def test_the_page_has_what_is_predicted(anchor: Anchor) -> None:
    row = f"{anchor.figure} | {anchor.published:.4g} | {anchor.predicted:.4g} | {anchor.error * 100:+.1f} %"
    assert row in PAGE
