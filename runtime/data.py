"""The data of a run: the same samples for the same seed, whatever the strategy, the micro-batch or the engine.

A sample has a global index, and its numbers depend on the seed and on that index only. Step k of a global batch B has
the samples kB to kB + B - 1, dealt to micro-batches and ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    """What a tensor of the example looks like: the shape of one sample, the type, and the range of integers."""

    shape: tuple[int, ...]
    """Without the first axis, that of samples."""
    dtype: torch.dtype
    least: int = 0
    greatest: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """An argument that is not drawn: sample i has that of the example's sample i, over and over."""

    of_example: Any
    """A tensor, or a list or tuple, as long as the example has samples."""

    def at(self, indices: Sequence[int]) -> Any:
        """Returns the same kind of value for these samples."""
        places = [index % len(self.of_example) for index in indices]
        if isinstance(self.of_example, torch.Tensor):
            return self.of_example[places]
        return type(self.of_example)(self.of_example[place] for place in places)


@dataclass(frozen=True, slots=True)
class GeneratedSamples:
    """Random samples that look like an example batch; what does not grow with the batch stays as it is there."""

    like: Mapping[str, Any]
    """The example's arguments, with a `TensorKind` or `Rows` in the place of what belongs to samples."""
    seed: int

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Returns the arguments for these samples: one tensor (len(indices), *shape) for each kind, and the rest."""
        kinds = list(_kinds(self.like))
        samples = [self._sample(kinds, index) for index in indices]
        stacked = iter([torch.stack([sample[place] for sample in samples]) for place in range(len(kinds))])
        return {name: _filled(value, stacked, indices) for name, value in self.like.items()}

    def _sample(self, kinds: Sequence[TensorKind], index: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed((self.seed * _SEED_STRIDE + index) % 2**32)
        return [_random(kind, generator) for kind in kinds]


@dataclass(frozen=True, slots=True)
class DatasetSamples:
    """Samples of the user's own map-style dataset, over and over."""

    dataset: Any
    """`dataset[i]` is a dict of the model's arguments for one sample, without the axis of samples; it has a length."""

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Returns the collated samples; index i is `dataset[i % len(dataset)]`."""
        collated: dict[str, Any] = default_collate([self.dataset[index % len(self.dataset)] for index in indices])
        return collated


def samples_like(
    example: Mapping[str, Any], num_samples: int, seed: int, kept: Collection[str] = ()
) -> GeneratedSamples:
    """Returns random samples like those of an example batch.

    Floats are normal; integers and booleans uniform between the example's least and greatest. A tensor whose first
    axis is not `num_samples` long belongs to no sample: it stays as given, as does what is no tensor. Lists, tuples and
    dictionaries are looked into.

    Args:
        example: Keyword arguments of the model.
        num_samples: Samples in the example.
        seed: Of the run.
        kept: Names of the arguments that are not drawn: each sample has what one of the example's has.
    """
    like = {
        name: _rows(value, num_samples) if name in kept else _alike(value, num_samples)
        for name, value in example.items()
    }
    return GeneratedSamples(like, seed)


def samples_of_rank(
    step: int, micro_batch: int, rank: int, *, micro_batch_size: int, num_micro_batches: int, world_size: int
) -> range:
    """Returns the global indices of the samples of one micro-batch of one rank.

    Over all ranks and micro-batches of a step they are its global batch, each once.
    """
    first = ((step * num_micro_batches + micro_batch) * world_size + rank) * micro_batch_size
    return range(first, first + micro_batch_size)


def _rows(value: Any, num_samples: int) -> Any:
    has_samples = isinstance(value, list | tuple) or (isinstance(value, torch.Tensor) and value.dim() > 0)
    return Rows(value) if has_samples and len(value) == num_samples else value


def _alike(value: Any, num_samples: int) -> Any:
    if isinstance(value, torch.Tensor):
        has_samples = value.dim() > 0 and value.shape[0] == num_samples and value.numel() > 0
        return _kind(value) if has_samples else value
    if type(value) in (list, tuple):
        return type(value)(_alike(item, num_samples) for item in value)
    if type(value) is dict:
        return {key: _alike(item, num_samples) for key, item in value.items()}
    return value


def _kind(value: torch.Tensor) -> TensorKind:
    shape = tuple(value.shape[1:])
    if value.is_floating_point() or value.is_complex():
        return TensorKind(shape, value.dtype)
    return TensorKind(shape, value.dtype, int(value.min()), int(value.max()))


def _kinds(value: Any) -> Iterator[TensorKind]:
    """Yields the kinds in a value in the order in which `_filled` comes by them."""
    if isinstance(value, TensorKind):
        yield value
    elif type(value) in (list, tuple, dict):
        for item in value.values() if type(value) is dict else value:
            yield from _kinds(item)


def _filled(value: Any, stacked: Iterator[torch.Tensor], indices: Sequence[int]) -> Any:
    if isinstance(value, TensorKind):
        return next(stacked)
    if isinstance(value, Rows):
        return value.at(indices)
    if type(value) in (list, tuple):
        return type(value)(_filled(item, stacked, indices) for item in value)
    if type(value) is dict:
        return {key: _filled(item, stacked, indices) for key, item in value.items()}
    return value


def _random(kind: TensorKind, generator: torch.Generator) -> torch.Tensor:
    if kind.dtype.is_floating_point:
        return torch.randn(kind.shape, generator=generator).to(kind.dtype)
    if kind.dtype.is_complex:
        return torch.randn(kind.shape, generator=generator, dtype=torch.complex64).to(kind.dtype)
    return torch.randint(kind.least, kind.greatest + 1, kind.shape, generator=generator).to(kind.dtype)
