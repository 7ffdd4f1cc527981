"""How many rows reach each layer of a model that is not run: tokens, frames or places of an image, from its batch."""

from __future__ import annotations

import math
from collections.abc import Callable
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


class Entries:
    """Where the tensors of a batch enter the model: at the layers that read what nothing before them has made."""

    def __init__(self, batch: dict[str, Any], value: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        """Takes the keyword arguments of the model, and what gives the values of a fake tensor where they are known."""
        tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]
        floats = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.dim() > 1]
        self._floats = sorted(floats, key=torch.Tensor.numel, reverse=True)
        # Tokens are the largest of two axes; further ones tell something of each token, such as its place on a page.
        whole = [tensor for tensor in tensors if not tensor.is_floating_point()]
        self._tokens = max(whole, key=lambda tensor: (tensor.dim() == 2, tensor.numel()), default=None)
        known = None if self._tokens is None else value(self._tokens)
        self._greatest_token = int(known.max()) if known is not None and known.numel() else 0

    def first(self) -> Rows:
        """Returns the rows of the largest tensor: tokens, or numbers of which the last axis is the width."""
        if self._floats and (self._tokens is None or self._floats[0].numel() > self._tokens.numel()):
            return _as_numbers(self._floats[0])
        return Rows(1, (), 1) if self._tokens is None else _as_tokens(self._tokens)

    def before(self, module: nn.Module, rows: Rows) -> Rows:
        """Returns the rows that a layer reads: those that come to it, or else a tensor of the batch that fits it."""
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            # A table that is too short for the tokens is of something else, such as the places of an image.
            is_for_tokens = self._tokens is not None and module.num_embeddings > self._greatest_token
            return _as_tokens(self._tokens) if is_for_tokens and self._tokens is not None else rows
        is_convolution = isinstance(module, _CONVOLUTIONS) and rows.width != module.in_channels
        if not is_convolution and not (isinstance(module, nn.Linear) and rows.width != module.in_features):
            return rows
        for position, tensor in enumerate(self._floats):
            fitting = _convolved_from(module, tensor) if is_convolution else _multiplied_from(module, tensor)
            if fitting is not None:
                del self._floats[position]  # it enters once
                return fitting
        return rows


def _convolved_from(module: Any, tensor: torch.Tensor) -> Rows | None:
    samples, *axes = tensor.shape
    rank, channels = len(module.kernel_size), module.in_channels
    if len(axes) == rank and channels == 1:  # a wave has no axis of channels
        return Rows(samples, tuple(axes), 1)
    if len(axes) == rank + 1 and axes[0] == channels:
        return Rows(samples, tuple(axes[1:]), channels)
    if len(axes) == rank + 1 and axes[1] == channels:  # a video has its frames before its channels
        return Rows(samples, (axes[0], *axes[2:]), channels)
    return None


def _multiplied_from(module: Any, tensor: torch.Tensor) -> Rows | None:
    return _as_numbers(tensor) if tensor.dim() < 4 and tensor.shape[-1] == module.in_features else None


def _as_tokens(tensor: torch.Tensor) -> Rows:
    return Rows(tensor.shape[0], tuple(tensor.shape[1:]), 1)


def _as_numbers(tensor: torch.Tensor) -> Rows:
    """An image or a video has its channels before its places, all else has its width last."""
    samples, *axes = tensor.shape
    return Rows(samples, tuple(axes[1:]), axes[0]) if len(axes) > 2 else Rows(samples, tuple(axes[:-1]), axes[-1])


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
