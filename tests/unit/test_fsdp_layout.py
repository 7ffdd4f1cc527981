"""What a reduction takes, and what a gather gives, is every element of a block once, at its place."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from runtime.fsdp.layout import Layout, lay_out

SHAPES = st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=4)


@st.composite
def nested(draw: st.DrawFn) -> tuple[int, int, int]:
    """Returns (p, g, o): p and g divide o, and one of them the other."""
    inner = draw(st.integers(1, 6))
    outer = inner * draw(st.integers(1, 4))
    param, grad = draw(st.permutations((inner, outer)))
    return param, grad, outer * draw(st.integers(1, 3))


def numbered(shapes: list[list[int]]) -> list[Tensor]:
    """Returns tensors of these shapes whose elements are 1, 2, 3, ... : none of them twice, and 0 is padding."""
    found, first = [], 1
    for shape in shapes:
        elements = math.prod(shape)
        found.append(torch.arange(first, first + elements, dtype=torch.float64).view(shape))
        first += elements
    return found


def piece_of(filled: Tensor, layout: Layout, rank: int) -> Tensor:
    """Returns what reductions over g, and from g to o, leave of a filled message on a rank: its slice."""
    over_grad = filled.view(layout.grad_degree, -1)[rank % layout.grad_degree]
    between = layout.optim_degree // layout.grad_degree
    return over_grad.view(between, -1)[rank % layout.optim_degree // layout.grad_degree]


@given(SHAPES, nested())
def test_a_filled_message_has_every_element_once_and_zeros(shapes: list[list[int]], degrees: tuple[int, ...]) -> None:
    layout = lay_out(shapes, *degrees)
    gradients = numbered(shapes)
    filled = torch.full((layout.full_elements,), -1.0, dtype=torch.float64)
    layout.fill(filled, gradients)
    elements = sum(gradient.numel() for gradient in gradients)
    padding = layout.full_elements - elements
    assert sorted(filled.tolist()) == [0.0] * padding + list(range(1, elements + 1))


@given(SHAPES, nested())
def test_the_reductions_leave_a_rank_the_elements_of_its_slice(
    shapes: list[list[int]], degrees: tuple[int, ...]
) -> None:
    layout = lay_out(shapes, *degrees)
    gradients = numbered(shapes)
    filled = torch.empty(layout.full_elements, dtype=torch.float64)
    layout.fill(filled, gradients)
    for rank in range(layout.optim_degree):
        own = piece_of(filled, layout, rank)
        for piece, gradient in zip(layout.pieces, gradients, strict=True):
            first, last = layout.range_of(rank, piece)
            found = own[piece.offset : piece.offset + piece.slice_elements]
            assert torch.equal(found[: last - first], gradient.reshape(-1)[first:last])
            assert not found[last - first :].any()


@given(SHAPES, nested())
def test_slices_of_all_ranks_are_the_whole_parameter(shapes: list[list[int]], degrees: tuple[int, ...]) -> None:
    layout = lay_out(shapes, *degrees)
    for piece in layout.pieces:
        ranges = sorted(layout.range_of(rank, piece) for rank in range(layout.optim_degree))
        covered = [element for first, last in ranges for element in range(first, last)]
        assert covered == list(range(piece.num_elements))


@given(SHAPES, nested())
def test_shards_are_those_of_fully_shard(shapes: list[list[int]], degrees: tuple[int, ...]) -> None:
    layout = lay_out(shapes, *degrees)
    for piece, shape in zip(layout.pieces, shapes, strict=True):
        rows = torch.arange(math.prod(shape)).view(shape or (1,))
        chunks = [*torch.chunk(rows, layout.param_degree), *[rows[:0]] * layout.param_degree]
        for rank in range(layout.optim_degree):
            first, last = layout.range_of(rank, piece)
            start, end = layout.slice_of(rank, piece)
            own = chunks[rank % layout.param_degree].reshape(-1)
            assert own[start:end].tolist() == list(range(first, last))


@given(SHAPES, nested())
def test_no_gradient_is_a_gradient_of_zeros(shapes: list[list[int]], degrees: tuple[int, ...]) -> None:
    layout = lay_out(shapes, *degrees)
    gradients = numbered(shapes)
    absent, zero = (torch.empty(layout.full_elements, dtype=torch.float64) for _ in range(2))
    layout.fill(absent, [None, *gradients[1:]])
    layout.fill(zero, [torch.zeros_like(gradients[0]), *gradients[1:]])
    assert torch.equal(absent, zero)


def test_nothing_is_padded_where_everything_divides() -> None:
    layout = lay_out([(16, 6), (8,)], 4, 2, 8)
    assert layout.full_elements == 16 * 6 + 8
    assert (layout.shard_elements, layout.slice_elements) == (52, 13)
