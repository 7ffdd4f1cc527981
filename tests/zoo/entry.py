"""What an entry of the zoo is: a callable that builds a small model with a batch, usable as a MODEL of the command.

shardplan trace tests/zoo/decoders.py:llama
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Batch = dict[str, Any]

VOCABULARY = 512
LENGTH = 32
IMAGE_SIZE = 64


@dataclass(frozen=True)
class Entry:
    """A model of the zoo; called with a micro-batch size it returns the module and a batch of so many samples."""

    family: str
    make: Callable[[int], tuple[nn.Module, Batch]]
    notes: str = ""

    def __call__(self, micro_batch_size: int) -> tuple[nn.Module, Batch]:
        return self.make(micro_batch_size)


class WithLoss(nn.Module):
    """Gives a network that returns activations a loss: the mean square of the first that needs a gradient."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, **batch: Any) -> torch.Tensor:
        return _first_output(self.network(**batch)).float().square().mean()


def transformer(
    class_name: str,
    fields: Mapping[str, Any],
    batch: Callable[[int], Batch],
    *,
    family: str,
    notes: str = "",
    has_loss: bool = True,
) -> Entry:
    """Returns the entry of a class of transformers, of a config with `fields`."""

    def make(micro_batch_size: int) -> tuple[nn.Module, Batch]:
        import transformers

        model_class = getattr(transformers, class_name)
        # transformers completes the dictionaries of nested configs in place.
        module = model_class(model_class.config_class(**_copied(fields)))
        return module if has_loss else WithLoss(module), batch(micro_batch_size)

    return Entry(family, make, notes)


def network(
    build: Callable[[], nn.Module],
    batch: Callable[[int], Batch],
    *,
    family: str,
    notes: str = "",
    has_loss: bool = True,
) -> Entry:
    """Returns the entry of any other module."""

    def make(micro_batch_size: int) -> tuple[nn.Module, Batch]:
        return build() if has_loss else WithLoss(build()), batch(micro_batch_size)

    return Entry(family, make, notes)


def tokens(micro_batch_size: int, length: int = LENGTH, *, end: int = VOCABULARY, first: int = 3) -> torch.Tensor:
    """Returns whole numbers (micro_batch_size, length), the same in every sample, between `first` and `end`."""
    row = first + torch.arange(length) * 7 % (end - first)
    return row.expand(micro_batch_size, length).contiguous()


def text(micro_batch_size: int) -> Batch:
    """Returns tokens that are their own labels."""
    ids = tokens(micro_batch_size)
    return {"input_ids": ids, "labels": ids.clone()}


def decoded(micro_batch_size: int) -> Batch:
    """Returns `text` for a model that would otherwise keep a cache for decoding."""
    return {**text(micro_batch_size), "use_cache": False}


def masked(micro_batch_size: int) -> Batch:
    """Returns `text` of full length, with the mask that a tokenizer gives."""
    ids = tokens(micro_batch_size)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def translated(micro_batch_size: int) -> Batch:
    """Returns a text with its translation."""
    return {"input_ids": tokens(micro_batch_size), "labels": tokens(micro_batch_size, 16), "use_cache": False}


def pixels(micro_batch_size: int, size: int = IMAGE_SIZE) -> Batch:
    """Returns images (micro_batch_size, 3, size, size)."""
    return {"pixel_values": torch.randn(micro_batch_size, 3, size, size)}


def labelled(micro_batch_size: int, size: int = IMAGE_SIZE) -> Batch:
    """Returns images, each of class 1."""
    return {**pixels(micro_batch_size, size), "labels": torch.ones(micro_batch_size, dtype=torch.long)}


def wave(micro_batch_size: int, length: int = 4000) -> Batch:
    """Returns sounds (micro_batch_size, length)."""
    return {"input_values": torch.randn(micro_batch_size, length)}


def _first_output(value: Any) -> torch.Tensor:
    found = [tensor for tensor in _tensors(value) if tensor.is_floating_point() and tensor.requires_grad]
    return found[0]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    # The outputs of diffusers are mappings of their fields; other objects hold theirs as attributes.
    return [tensor for item in vars(value).values() for tensor in _tensors(item)] if hasattr(value, "__dict__") else []


def _copied(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in fields.items()}
