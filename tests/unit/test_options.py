"""How the texts of options are read."""

from __future__ import annotations

import pytest
import typer

from planner.read.options import parse_bytes, parse_counts, parse_degrees


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("85899345920", 85899345920),
        ("70GiB", 70 * 1024**3),
        ("70GB", 70 * 10**9),
        (" 70 gib ", 70 * 1024**3),
        ("1.5KiB", 1536),
        ("2TB", 2 * 10**12),
        ("12 B", 12),
    ],
)
def test_a_size_is_bytes_or_has_a_whole_unit(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "70G", "GiB", "-5GiB", "0", "0.5B", "1e9", "70GiB extra", "nan", "١GiB"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(typer.BadParameter, match=r"70GiB|at least one byte"):
        parse_bytes(text)


def test_degrees_are_three_positive_numbers():
    assert parse_degrees("1, 8,32") == (1, 8, 32)
    for text in ("", "1,2", "1,2,3,4", "0,1,1", "-1,1,1", "a,b,c", "1.0,1,1", "²,1,1"):
        with pytest.raises(typer.BadParameter, match="1,8,32"):
            parse_degrees(text)


def test_counts_are_one_or_more_positive_numbers():
    assert parse_counts("1,2,4") == (1, 2, 4)
    assert parse_counts("7") == (7,)
    for text in ("", "1,,2", "0", "1,x"):
        with pytest.raises(typer.BadParameter, match="1,2,4"):
            parse_counts(text)
