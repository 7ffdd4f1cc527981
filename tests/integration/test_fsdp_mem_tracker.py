"""The predicted peak is what PyTorch's own memory tracker counts, on 8 ranks and on 64, which are not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from fsdp_mem_tracker import PAGE, Case, Model, cases, page, predicted_bytes, tracked

TOLERANCE = 0.05
SMALL = Model(depth=6)
"""50 million parameters."""


@pytest.mark.parametrize(
    "case",
    [
        Case(8, 8, "fp32", "fully_shard", SMALL),
        Case(64, 8, "bf16", "fully_shard", SMALL),
        Case(8, 4, "bf16", "runtime", SMALL),
        Case(64, 64, "fp32", "runtime", SMALL),
    ],
    ids=str,
)
def test_the_tracker_counts_what_was_predicted(case: Case) -> None:
    assert predicted_bytes(case) == pytest.approx(tracked(case)["Total"], rel=TOLERANCE)


def test_the_runtime_holds_at_its_peak_what_plain_fully_shard_holds() -> None:
    plain, own = (tracked(Case(64, 8, "fp32", engine, SMALL)) for engine in ("fully_shard", "runtime"))
    assert own["Total"] == pytest.approx(plain["Total"], rel=0.03)
    assert own["Sharded Param"] == plain["Sharded Param"]


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_tracker_counts_what_was_predicted_of_a_hundred_million_parameters(case: Case) -> None:
    assert predicted_bytes(case) == pytest.approx(tracked(case)["Total"], rel=TOLERANCE)


@pytest.mark.slow
def test_the_page_is_what_its_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
