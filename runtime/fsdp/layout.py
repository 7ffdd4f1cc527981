"""Where each element of a block's parameters lies: in gradients sharded to g, in optimizer states sharded to o.

A parameter is sharded over p ranks by rows, as `fully_shard` does it. The shard of each p-rank is cut on into o/p
slices of equal length (the last ones may be short): the rank r of the world holds slice (r mod o) // p of shard
r mod p. Gradients sharded to g are whole sets of such slices, so that reducing from g to o, and gathering from o back
to p, move contiguous memory. For one parameter, in the order of its own elements, the slices are numbered

    [y, x, b, a]    shard x' of x in set y' of y, and in that shard slice a' of a in set b' of b, where
                    x = min(p, g), y = p / x, a = g / x, b = o / max(p, g)

and the reduction over g takes them in the order [a, x, b, y]: the piece of rank r mod g first, in it that of the rank
(r mod o) // g between g and o.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """One trainable parameter of a block."""

    num_elements: int
    """Of the whole parameter."""
    shard_elements: int
    """Of the fullest of p shards: whole rows."""
    slice_elements: int
    """Of the fullest of the o/p slices of a shard."""
    offset: int
    """Of the parameter's slice in the block's."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The slices of a block of parameters that are reduced, updated and spread together."""

    param_degree: int
    grad_degree: int
    optim_degree: int
    pieces: tuple[Piece, ...]

    @property
    def slice_elements(self) -> int:
        """Elements of the block that a rank updates, padding included."""
        return sum(piece.slice_elements for piece in self.pieces)

    @property
    def shard_elements(self) -> int:
        """Elements of the gradients that a rank accumulates once they are reduced over g, padding included."""
        return self.optim_degree // self.grad_degree * self.slice_elements

    @property
    def full_elements(self) -> int:
        """Elements of all slices."""
        return self.optim_degree * self.slice_elements

    def slice_of(self, rank: int, piece: Piece) -> tuple[int, int]:
        """Returns the first and the last + 1 element of the rank's slice within its shard of a parameter."""
        first = rank % self.optim_degree // self.param_degree * piece.slice_elements
        return min(first, piece.shard_elements), min(first + piece.slice_elements, piece.shard_elements)

    def range_of(self, rank: int, piece: Piece) -> tuple[int, int]:
        """Returns the first and the last + 1 element of the rank's slice within the whole parameter."""
        first, last = self.slice_of(rank, piece)
        start = rank % self.param_degree * piece.shard_elements
        return min(start + first, piece.num_elements), min(start + last, piece.num_elements)

    def fill(self, buffer: Tensor, gradients: Sequence[Tensor | None]) -> None:
        """Copies whole gradients into the input of their reduction over g (or o, where g = 1).

        Args:
            buffer: (full_elements,).
            gradients: of each piece, in its parameter's shape; None: zeros.
        """
        counts = self._counts
        order = buffer.view(counts[3], counts[1], counts[2], counts[0], self.slice_elements)
        for piece, gradient in zip(self.pieces, gradients, strict=True):
            target = order[..., piece.offset : piece.offset + piece.slice_elements]
            if gradient is None:
                target.zero_()
            else:
                target.copy_(self._padded(piece, gradient).view(*counts, piece.slice_elements).permute(3, 1, 2, 0, 4))

    @property
    def _counts(self) -> tuple[int, int, int, int]:
        """(y, x, b, a)."""
        shared = min(self.param_degree, self.grad_degree)
        return (
            self.param_degree // shared,
            shared,
            self.optim_degree // max(self.param_degree, self.grad_degree),
            self.grad_degree // shared,
        )

    def _padded(self, piece: Piece, gradient: Tensor) -> Tensor:
        """Returns the gradient as p shards of o/p full slices each; a copy only where something is short."""
        flat = gradient.reshape(-1)
        if piece.slice_elements * self.optim_degree == piece.num_elements:
            return flat
        per_shard = piece.slice_elements * (self.optim_degree // self.param_degree)
        padded = flat.new_zeros(self.param_degree, per_shard)
        whole, rest = divmod(piece.num_elements, piece.shard_elements)
        padded[:whole, : piece.shard_elements] = flat[: whole * piece.shard_elements].view(whole, piece.shard_elements)
        if rest:
            padded[whole, :rest] = flat[whole * piece.shard_elements :]
        return padded


def lay_out(shapes: Sequence[Sequence[int]], param_degree: int, grad_degree: int, optim_degree: int) -> Layout:
    """Returns the layout of a block.

    Args:
        shapes: of its trainable parameters; () is a scalar.
        param_degree: p.
        grad_degree: g; one of p and g divides the other.
        optim_degree: o, a multiple of both.
    """
    pieces = []
    offset = 0
    for shape in shapes:
        # A scalar has one row, as FSDP2 refuses to shard what has no axis: see `shard`.
        rows, width = (shape[0], prod(shape[1:])) if shape else (1, 1)
        shard_elements = -(-rows // param_degree) * width
        slice_elements = -(-shard_elements // (optim_degree // param_degree))
        pieces.append(Piece(rows * width, shard_elements, slice_elements, offset))
        offset += slice_elements
    return Layout(param_degree, grad_degree, optim_degree, tuple(pieces))
