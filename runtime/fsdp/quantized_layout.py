"""How numbers of 8 or 4 bits lie in bytes: the blocks of a row, with one scale each.

A row of elements is cut into runs (the elements of one parameter), and a run into blocks of `BLOCK` elements, the last
one shorter. The bytes of a row are, run by run, its scales as fp32, then its elements, padded to whole fp32 numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Bits = Literal[4, 8]
BLOCK = 256
"""Elements with one scale: 4 bytes for 256 make int8 0.508 and int4 0.258 of bf16."""
SCALE_BYTES = 4


class Part(NamedTuple):
    """Blocks of equal length, next to each other in a row."""

    start: int
    """Its first element in the row."""
    num_blocks: int
    block: int
    """Elements of each of its blocks."""
    scales: int
    """First byte of its scales in the row's."""
    payload: int
    """First byte of its elements."""

    def elements(self, row: Tensor) -> Tensor:
        """Returns the part of (..., elements) as (..., num_blocks, block)."""
        return _blocks(row, self.start, self.num_blocks, self.block)

    def scales_of(self, message: Tensor) -> Tensor:
        """Returns the part's scales in (..., bytes) as fp32 of (..., num_blocks, 1)."""
        end = self.scales + SCALE_BYTES * self.num_blocks
        return message[..., self.scales : end].view(torch.float32).unsqueeze(-1)

    def payload_of(self, message: Tensor, bits: Bits) -> Tensor:
        """Returns the part's elements in (..., bytes) as (..., num_blocks, bytes of a block)."""
        return _blocks(message, self.payload, self.num_blocks, _payload_bytes(self.block, bits))


@dataclass(frozen=True, slots=True)
class Code:
    """How rows of elements lie in bytes."""

    bits: Bits
    runs: tuple[int, ...]
    """Elements of each run."""

    @property
    def num_elements(self) -> int:
        """Of a row."""
        return sum(self.runs)

    @property
    def num_bytes(self) -> int:
        """Of a row: a whole number of fp32 numbers."""
        return sum(run_bytes(run, self.bits) for run in self.runs)

    def parts(self, num_rows: int, at_once: int) -> Iterator[Part]:
        """Yields the parts of so many rows, of not many more than `at_once` elements each."""
        start = place = 0
        for run in self.runs:
            whole, rest = divmod(run, BLOCK)
            payload = place + SCALE_BYTES * (whole + (rest > 0))
            step = max(1, at_once // max(1, num_rows * BLOCK))
            for first in range(0, whole, step):
                yield Part(
                    start + BLOCK * first,
                    min(step, whole - first),
                    BLOCK,
                    place + SCALE_BYTES * first,
                    payload + _payload_bytes(BLOCK, self.bits) * first,
                )
            if rest:
                yield Part(
                    start + BLOCK * whole,
                    1,
                    rest,
                    place + SCALE_BYTES * whole,
                    payload + _payload_bytes(BLOCK, self.bits) * whole,
                )
            start, place = start + run, place + run_bytes(run, self.bits)


def _blocks(row: Tensor, first: int, num_blocks: int, width: int) -> Tensor:
    """Returns the next elements of (..., elements) as (..., num_blocks, width): a view."""
    *rows, step = row.stride()
    offset = row.storage_offset() + first * step
    return row.as_strided((*row.shape[:-1], num_blocks, width), (*rows, width * step, step), offset)


def run_bytes(num_elements: int, bits: Bits) -> int:
    """Returns the bytes of a run with its scales."""
    whole, rest = divmod(num_elements, BLOCK)
    payload = _payload_bytes(BLOCK, bits) * whole + _payload_bytes(rest, bits)
    return SCALE_BYTES * (whole + (rest > 0)) + -(-payload // SCALE_BYTES) * SCALE_BYTES


def _payload_bytes(num_elements: int, bits: Bits) -> int:
    return -(-num_elements * bits // 8)


def residual_code(code: Code) -> Code:
    """Returns how what a quantization left out is kept: in 8 bits."""
    return Code(8, code.runs)
