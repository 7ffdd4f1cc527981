"""The page on `explain` has every key that the command prints."""

from pathlib import Path

import pytest

from planner.explain.explanation import (
    AtMicroBatch,
    Comparison,
    Difference,
    Line,
    MessageDifference,
    MessageFigures,
    Side,
)

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [Comparison, Side, MessageDifference, MessageFigures, AtMicroBatch, Difference, Line])
def test_every_key_of_an_answer_is_documented(kind: type) -> None:
    missing = [name for name in kind.model_fields if name not in PAGE]
    assert not missing
