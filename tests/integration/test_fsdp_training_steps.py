"""What users do between forwards, backwards and steps changes nothing that it would not change in plain torch."""

from __future__ import annotations

from collections.abc import Iterator

import fsdp_loops
import pytest
import torch
from by_turns import some
from fsdp_training import ADAMW, Tiny, train_alone
from gloo_ranks import GlooRanks
from torch import Tensor

WORLD_SIZE = 4
DEGREES = ((1, 1, 1, 4), (1, 1, 2, 2), (2, 2, 4, 4), (4, 2, 2, 4), (4, 1, 1, 4))
Degrees = tuple[int, int, int, int]


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(WORLD_SIZE) as started:
        yield started


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("degrees", some(DEGREES, (4, 1, 1, 4), (1, 1, 2, 2)))
def test_an_evaluation_sees_the_last_update_and_changes_nothing(ranks: GlooRanks, degrees: Degrees) -> None:
    _, plain = ranks.run(fsdp_loops.evaluating, degrees, ())[0]
    losses, between = ranks.run(fsdp_loops.evaluating, degrees, ("between",))[0]
    again, everywhere = ranks.run(fsdp_loops.evaluating, degrees, ("between", "before", "middle"))[0]
    assert same(plain, between)
    assert same(plain, everywhere)
    assert losses == again
    assert len(set(losses)) == len(losses)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("degrees", some(DEGREES, (4, 2, 2, 4)))
def test_a_state_dict_is_that_of_the_last_update_and_can_be_loaded(
    ranks: GlooRanks, degrees: Degrees, precision: str
) -> None:
    for saved, parameters, loaded in ranks.run(fsdp_loops.saved_after_steps, degrees, precision):
        assert same(parameters, saved)
        assert same(parameters, loaded)


@pytest.mark.parametrize("degrees", some(DEGREES, (4, 2, 2, 4)))
def test_a_step_of_fewer_micro_batches_takes_their_mean(ranks: GlooRanks, degrees: Degrees) -> None:
    fewer = ranks.run(fsdp_loops.with_fewer_micro_batches, degrees)[0]
    planned = ranks.run(fsdp_loops.with_plain_steps, degrees)[0]
    for name, value in planned.items():
        assert torch.allclose(fewer[name], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("zeroing", [False, True])
@pytest.mark.parametrize("degrees", some(DEGREES, (1, 1, 1, 4)))
def test_a_backward_of_ones_own_is_the_optimizers(ranks: GlooRanks, degrees: Degrees, *, zeroing: bool) -> None:
    own = ranks.run(fsdp_loops.with_own_backward, degrees, zeroing)[0]
    assert same(own, ranks.run(fsdp_loops.with_plain_steps, degrees)[0])


@pytest.mark.parametrize("degrees", some(DEGREES, (4, 2, 2, 4)))
def test_what_would_train_wrongly_is_refused(ranks: GlooRanks, degrees: Degrees) -> None:
    for messages in ranks.run(fsdp_loops.refusals, degrees):
        assert "without a backward" in messages["step first"]
        assert "beyond the 1 micro-batches" in messages["one too many"]
        assert "beyond the 1 micro-batches" in messages["one too many of one's own"]
        assert "optimizer.backward(loss)" in messages.get("fp16 unscaled", "optimizer.backward(loss)")


@pytest.mark.parametrize("degrees", some(DEGREES, (4, 1, 1, 4), (1, 1, 2, 2)))
def test_a_step_that_failed_is_given_up_and_taken_anew(ranks: GlooRanks, degrees: Degrees) -> None:
    plain = ranks.run(fsdp_loops.with_plain_steps, degrees)[0]
    for errors, parameters in ranks.run(fsdp_loops.after_failures, degrees, timeout_s=60):
        assert errors[:2] == ["in the middle of forward", "in the middle of backward"]
        assert all("optimizer.zero_grad()" in error for error in errors[2:4])
        assert same(parameters, plain)


@pytest.mark.parametrize("degrees", some(DEGREES, (4, 2, 2, 4)))
def test_an_overflow_is_skipped_by_all_ranks_and_halves_the_scale(ranks: GlooRanks, degrees: Degrees) -> None:
    found = ranks.run(fsdp_loops.overflowing, degrees)
    assert all(each == found[0] for each in found)
    scales = [2.0**21, *(scale for scale, _, _ in found[0])]
    skipped = [not changed for _, changed, _ in found[0]]
    assert skipped[0]
    assert not skipped[-1]
    for number, was_skipped in enumerate(skipped):
        assert scales[number + 1] == scales[number] / (2 if was_skipped else 1)
    assert found[0][-1][2] < found[0][0][2]


@pytest.mark.parametrize("degrees", some(DEGREES, (4, 2, 2, 4)))
def test_groups_may_be_added_and_parameters_left_out(ranks: GlooRanks, degrees: Degrees) -> None:
    first, second, weight, bias, embedding = ranks.run(fsdp_loops.in_groups, degrees)[0]
    assert (first, second) == (0.1, 0.5)
    assert weight > 0
    assert bias > 0
    assert embedding == 0


def test_the_plain_loop_is_that_of_one_process(ranks: GlooRanks) -> None:
    found = ranks.run(fsdp_loops.with_plain_steps, (1, 1, 2, 2), 10)[0]
    _, parameters = train_alone(Tiny, 2, ADAMW, WORLD_SIZE)
    for name, value in parameters.items():
        assert torch.allclose(found[name], value, rtol=0, atol=1e-5)
