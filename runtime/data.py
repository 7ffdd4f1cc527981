"""The data of a run: the same samples for the same seed, whatever the strategy, the micro-batch or the engine.

A sample has a global index, and its numbers depend on the seed and on that index only. Step k of a global batch B has
the samples kB to kB + B - 1, dealt to micro-batches and ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.data import default_collate

_SEED_STRIDE = 2_654_435_761
"""Knuth's multiplicative hash, so that runs of neighbouring seeds share no sample. torch's generator keeps 32 bits."""


class Samples(Protocol):
    """Where samples come from, by their global index."""

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Returns the keyword arguments of the model for these samples, on the CPU."""
        ...


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What an argument of the model looks like: the shape of one sample, the type, and the range of integers."""

    name: str
    shape: tuple[int, ...]
    """Without the first axis, that of samples."""
    dtype: torch.dtype
    least: int = 0
    greatest: int = 0


@dataclass(frozen=True, slots=True)
class GeneratedSamples:
    """Random samples that look like an example batch; what does not grow with the batch stays as it is there."""

    kinds: tuple[TensorKind, ...]
    constants: Mapping[str, Any]
    seed: int

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Returns one tensor (len(indices), *shape) for each kind, and the constants."""
        samples = [self._sample(index) for index in indices]
        stacked = {
            kind.name: torch.stack([sample[place] for sample in samples]) for place, kind in enumerate(self.kinds)
        }
        return {**self.constants, **stacked}

    def _sample(self, index: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed((self.seed * _SEED_STRIDE + index) % 2**32)
        return [_random(kind, generator) for kind in self.kinds]


@dataclass(frozen=True, slots=True)
class DatasetSamples:
    """Samples of the user's own map-style dataset, over and over."""

    dataset: Any
    """`dataset[i]` is a dict of the model's arguments for one sample, without the axis of samples; it has a length."""

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Returns the collated samples; index i is `dataset[i % len(dataset)]`."""
        collated: dict[str, Any] = default_collate([self.dataset[index % len(self.dataset)] for index in indices])
        return collated


def samples_like(example: Mapping[str, Any], num_samples: int, seed: int) -> GeneratedSamples:
    """Returns random samples like those of an example batch.

    Floats are normal; integers and booleans uniform between the example's least and greatest. A tensor whose first
    axis is not `num_samples` long belongs to no sample: it stays as given, as does what is no tensor.

    Args:
        example: Keyword arguments of the model.
        num_samples: Samples in the example.
        seed: Of the run.
    """
    kinds: list[TensorKind] = []
    constants: dict[str, Any] = {}
    for name, value in example.items():
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == num_samples and value.numel() > 0:
            kinds.append(_kind(name, value))
        else:
            constants[name] = value
    return GeneratedSamples(tuple(kinds), constants, seed)


def samples_of_rank(
    step: int, micro_batch: int, rank: int, *, micro_batch_size: int, num_micro_batches: int, world_size: int
) -> range:
    """Returns the global indices of the samples of one micro-batch of one rank.

    Over all ranks and micro-batches of a step they are its global batch, each once.
    """
    first = ((step * num_micro_batches + micro_batch) * world_size + rank) * micro_batch_size
    return range(first, first + micro_batch_size)


def _kind(name: str, value: torch.Tensor) -> TensorKind:
    shape = tuple(value.shape[1:])
    if value.is_floating_point() or value.is_complex():
        return TensorKind(name, shape, value.dtype)
    return TensorKind(name, shape, value.dtype, int(value.min()), int(value.max()))


def _random(kind: TensorKind, generator: torch.Generator) -> torch.Tensor:
    if kind.dtype.is_floating_point:
        return torch.randn(kind.shape, generator=generator).to(kind.dtype)
    if kind.dtype.is_complex:
        return torch.randn(kind.shape, generator=generator, dtype=torch.complex64).to(kind.dtype)
    return torch.randint(kind.least, kind.greatest + 1, kind.shape, generator=generator).to(kind.dtype)
