"""AMSP's choices are feasible in its space, and within 3 % of the best of it."""

from __future__ import annotations

import pytest
from decisions_amsp import MODELS, NODES, choice, timeline_s

TOLERANCE = 0.03
CASES = [(model, num_nodes) for model in MODELS for num_nodes in NODES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "num_nodes"), CASES)
def test_what_amsp_chose_fits_and_is_within_3_per_cent_of_the_best(model: str, num_nodes: int) -> None:
    found = choice(model, num_nodes)
    _, _, peak_bytes = found.theirs
    assert peak_bytes <= found.budget_bytes
    assert 0 <= found.slower <= TOLERANCE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "num_nodes"), CASES)
def test_played_through_what_amsp_chose_beats_zero_3_and_is_within_3_per_cent_of_ours(
    model: str, num_nodes: int
) -> None:
    """The bound hides every gather that it may; in the timeline of ZeRO-3 some come too late, most on 128 nodes.

    13B there misses it by 0.9 %: the order in which the fsdp engine waits for its messages costs it 1.5 %.
    """
    found = choice(model, num_nodes)
    theirs_s, ours_s, zero_3_s = (
        timeline_s(model, num_nodes, each[0]) for each in (found.theirs, found.ours, found.zero_3)
    )
    assert theirs_s < zero_3_s or (model, num_nodes) == ("llama-13b", 128)
    assert theirs_s < 1.01 * zero_3_s
    assert theirs_s <= (1 + TOLERANCE) * ours_s


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS)
def test_sharding_less_than_amsp_does_not_fit_where_it_shards_parameters(model: str) -> None:
    """13B and 30B cannot be whole on every rank with their gradients, which is why AMSP shards both."""
    found = choice(model, 128)
    whole = found.at((1, 1, found.theirs[0][2]))
    assert (whole[2] <= found.budget_bytes) == (model == "llama-7b")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=[] if model == "llama-13b" else pytest.mark.slow) for model in MODELS]
)
def test_where_compute_hides_nothing_what_amsp_chose_beats_zero_3_and_a_sixth_is_to_gain(model: str) -> None:
    """Where it hides all it can, all that fits is within 6 % of the best, and 3 % tell little."""
    assert choice(model, 128).worst_slower < 0.06
    found = choice(model, 128, overlap=0.0)
    assert found.worst_slower > 0.2
    assert found.zero_3[1] > 1.06 * found.theirs[1]
    assert 0.08 < found.slower < 1 / 6
