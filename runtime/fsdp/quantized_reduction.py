"""Reduces the gradients of a block over g as int4 by all-to-alls (qgZ): inside the node, then between nodes.

Each hop quantizes once: a rank sends to every other what that one is to sum, and sums in fp32 what it gets. Within a
node there is one hop; between nodes goes int4 of the sums alone.

What a quantization leaves out is kept, and added before the next (error feedback): so what all micro-batches send
together is wrong by one quantization's error, not by the sum of all. It is kept in 8 bits, for the whole of what a rank
sends. In fp16 it was left out under the loss scale of its time; where gradients overflow, nothing of their blocks is
kept.

Reductions at the boundary (g to o, and o to N) are exact: they are of sums over all micro-batches, so there are few of
them, and after them nothing is left that could make up for an error.

Source: ZeRO++ (arXiv 2306.10209) section 3.3; LoCo (arXiv 2407.04480) section 3, error feedback in 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.fsdp.groups import Groups
from runtime.fsdp.layout import Layout
from runtime.fsdp.quantize import dequantize_sum, quantize
from runtime.fsdp.quantized_layout import Code, residual_code


@dataclass(frozen=True, slots=True)
class Hop:
    """One all-to-all between two degrees."""

    degree_from: int
    degree_to: int
    shape: tuple[int, int, int]
    """Rows of a rank before it: (ranks that it sends to, pieces of the gradients for each, slices of a piece)."""
    residual: Tensor | None
    """What this rank's last quantization left out; None: it is forgotten."""


class QuantizedReduction:
    """The reduction of one block over g."""

    def __init__(
        self, layout: Layout, groups: Groups, ranks_per_node: int, device: torch.device, error_feedback: bool
    ) -> None:
        """Makes the memory of the error feedback.

        Args:
            layout: of the block; g > 1.
            groups: of this rank.
            ranks_per_node: where the first hop ends, as far as g has its ranks.
            device: of the gradients.
            error_feedback: whether what is left out is kept.
        """
        self._groups = groups
        self._code = Code(4, tuple(piece.slice_elements for piece in layout.pieces))
        self._row_elements = layout.slice_elements
        self.hops: list[Hop] = []
        for degree_from, degree_to in hops(layout.grad_degree, ranks_per_node):
            shape = (
                degree_to // degree_from,
                layout.grad_degree // degree_to,
                layout.optim_degree // layout.grad_degree,
            )
            residual = None
            if error_feedback:
                residual = torch.zeros(*shape, residual_code(self._code).num_bytes, dtype=torch.uint8, device=device)
            self.hops.append(Hop(degree_from, degree_to, shape, residual))

    def reduce(self, full: Tensor, shard: Tensor) -> Iterator[None]:
        """Yields while a message is under way; after the last one, `shard` is the sum over g.

        Args:
            full: (full_elements,), as `Layout.fill` fills it; freed before the first message if nobody else holds it.
            shard: (shard_elements,).
        """
        source = full
        del full
        for hop in self.hops:
            # The piece of the rank r mod g is the one of that number. A rank of a hop gets the pieces whose number
            # is, in units of `degree_from`, its own place modulo the ranks of the hop.
            num_ranks, pieces, slices = hop.shape
            by_rank = source.view(pieces, num_ranks, slices, self._row_elements).transpose(0, 1)
            message = torch.empty(*hop.shape, self._code.num_bytes, dtype=torch.uint8, device=source.device)
            quantize(by_rank, message, self._code, hop.residual)
            del by_rank, source
            arrived = torch.empty_like(message)
            group = self._groups.between(hop.degree_from, hop.degree_to, "reduce")
            work = dist.all_to_all_single(arrived.view(-1), message.view(-1), group=group, async_op=True)
            yield
            if work is not None:
                work.wait()
            del message
            is_last = hop is self.hops[-1]
            source = shard if is_last else shard.new_empty(pieces * slices * self._row_elements)
            dequantize_sum(arrived, source.view(pieces, slices, self._row_elements), self._code)
            del arrived


def hops(grad_degree: int, ranks_per_node: int) -> list[tuple[int, int]]:
    """Returns the degrees between which each hop runs: inside the node, and between nodes where g has several."""
    inside = math.gcd(grad_degree, ranks_per_node)
    return [(low, high) for low, high in ((1, inside), (inside, grad_degree)) if low < high]
