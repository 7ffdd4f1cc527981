"""Which values a fake batch keeps: whole numbers, however they were made, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from planner.trace.fake.fake_world import fake_world
from planner.trace.fake.shadow import Shadow


@pytest.fixture
def shadow() -> Iterator[Shadow]:
    mode = FakeTensorMode()
    found = Shadow(mode)
    with fake_world(mode, found):
        yield found


def listed(shadow: Shadow, tensor: torch.Tensor) -> list[int] | None:
    value = shadow.value(tensor)
    return None if value is None else value.tolist()


def test_a_batch_of_random_tokens_has_values(shadow: Shadow) -> None:
    tokens = torch.randint(3, 9, (2, 4))
    values = listed(shadow, tokens.flatten())
    assert values is not None
    assert all(3 <= value < 9 for value in values)
    assert listed(shadow, (tokens >= 3).all().reshape(1)) == [True]


def test_a_mask_made_like_a_tensor_without_values_has_them(shadow: Shadow) -> None:
    activations = torch.rand(2, 3)
    mask = torch.ones_like(activations, dtype=torch.int64)
    mask[:, :1] = 0
    assert listed(shadow, mask) == [[0, 1, 1], [0, 1, 1]]
    assert listed(shadow, activations.new_full((2,), 7, dtype=torch.int64)) == [7, 7]


def test_random_floats_have_no_values(shadow: Shadow) -> None:
    assert shadow.value(torch.rand(3)) is None
    assert shadow.value(torch.rand(3) < 0.5) is None
