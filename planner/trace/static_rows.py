"""How many rows reach each layer of a model that is not run: tokens, frames or places of an image, from its batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_ADAPTIVE_POOLS = (
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The shape of what flows: samples, the places of one sample along its axes, and the numbers of one place."""

    num_samples: int
    places: tuple[int, ...]
    width: int

    @property
    def count(self) -> int:
        """Rows of all samples."""
        return self.num_samples * math.prod(self.places)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and their width."""
        return self.count, self.width


def rows_of_batch(batch: dict[str, Any]) -> Rows:
    """Returns the rows of the largest tensor of a batch: tokens, or else numbers whose last axis is their width.

    An image (samples, channels, height, width) has its places last.
    """
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]
    floats = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.dim() > 1]
    whole = [tensor for tensor in tensors if not tensor.is_floating_point()]
    # Images say more of the work than their few labels do; a text's mask in floats says no more than its tokens.
    if floats and max(t.numel() for t in floats) > max((t.numel() for t in whole), default=0):
        largest = max(floats, key=torch.Tensor.numel)
        samples, *axes = largest.shape
        return Rows(samples, tuple(axes[1:]), axes[0]) if len(axes) > 2 else Rows(samples, tuple(axes[:-1]), axes[-1])
    if not whole:
        return Rows(1, (), 1)
    samples, *axes = max(whole, key=torch.Tensor.numel).shape
    return Rows(samples, tuple(axes), 1)


def rows_after(module: nn.Module, rows: Rows) -> Rows:
    """Returns the rows that leave a module without children: as torch's own layers make them, else unchanged in number.

    A module of unknown class that holds a matrix is taken for a linear map to the matrix's other side.
    """
    if isinstance(module, (*_CONVOLUTIONS, *_TRANSPOSED)):
        return Rows(rows.num_samples, _convolved(module, rows), module.out_channels)
    if isinstance(module, _POOLS):
        return Rows(rows.num_samples, _pooled(module, rows.places), rows.width)
    if isinstance(module, _ADAPTIVE_POOLS):
        return Rows(rows.num_samples, _adapted(module, rows.places), rows.width)
    if isinstance(module, nn.Flatten):
        return Rows(rows.num_samples, (), rows.width * math.prod(rows.places))
    if isinstance(module, nn.EmbeddingBag):
        return Rows(rows.num_samples, (), module.embedding_dim)
    if isinstance(module, nn.Embedding):
        return Rows(rows.num_samples, rows.places, module.embedding_dim)
    if isinstance(module, nn.RNNBase):
        return Rows(rows.num_samples, rows.places, module.hidden_size * (2 if module.bidirectional else 1))
    if isinstance(module, nn.Linear):
        # Places of an image may have been joined by the model's own code; those of tokens hardly ever are.
        is_flattened = len(rows.places) > 1 and module.in_features == rows.width * math.prod(rows.places)
        return Rows(rows.num_samples, () if is_flattened else rows.places, module.out_features)
    return Rows(rows.num_samples, rows.places, _other_side(module, rows.width))


def _other_side(module: nn.Module, width: int) -> int:
    matrices = [p for p in module._parameters.values() if p is not None and p.dim() >= 2 and p.shape[0] > 1]
    if not matrices:
        return width
    *_, first, second = matrices[-1].shape
    return int(first if second == width else second)


def _convolved(module: Any, rows: Rows) -> tuple[int, ...]:
    """Source: the shape rules of torch.nn.Conv2d and torch.nn.ConvTranspose2d."""
    places = _of_rank(rows.places, len(module.kernel_size))
    if isinstance(module, _TRANSPOSED):
        return tuple(
            (place - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1
            for place, stride, padding, dilation, kernel, extra in zip(
                places,
                module.stride,
                module.padding,
                module.dilation,
                module.kernel_size,
                module.output_padding,
                strict=True,
            )
        )
    padding = module.padding if isinstance(module.padding, tuple) else None  # "same" or "valid"
    if module.padding == "same":
        return places
    found = []
    for axis, place in enumerate(places):
        reach = module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
        padded = place + 2 * (padding[axis] if padding else 0)
        found.append(max((padded - reach) // module.stride[axis] + 1, 1))
    return tuple(found)


def _pooled(module: Any, places: tuple[int, ...]) -> tuple[int, ...]:
    def per_axis(value: Any) -> tuple[int, ...]:
        return tuple(value) if isinstance(value, tuple | list) else (value,) * len(places)

    kernel, stride, padding = (per_axis(value) for value in (module.kernel_size, module.stride, module.padding))
    axes = zip(places, kernel, stride, padding, strict=True)
    return tuple(max((place + 2 * around - size) // step + 1, 1) for place, size, step, around in axes)


def _adapted(module: Any, places: tuple[int, ...]) -> tuple[int, ...]:
    size = module.output_size
    sizes = tuple(size) if isinstance(size, tuple | list) else (size,) * len(places)
    return tuple(place if wanted is None else wanted for place, wanted in zip(places, sizes, strict=True))


def _of_rank(places: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Returns the places along as many axes as a convolution has."""
    if len(places) == rank:
        return places
    count = math.prod(places)
    return (*(1 for _ in range(rank - 1)), count) if len(places) < rank else places[-rank:]
