"""Models of the tests that compare the fsdp engine with its cost model: each is a MODEL of the command."""

from __future__ import annotations

from typing import Any

import torch
from fsdp_training import Layer, Tiny
from torch import nn


def uneven(micro_batch_size: int) -> tuple[nn.Module, dict[str, Any]]:
    """Returns a model of which no block divides by 8 ranks: a vocabulary of 37, layers 12 wide."""
    return Tiny(width=12, num_layers=2, vocabulary=37), _tokens(micro_batch_size, 37)


def tied(micro_batch_size: int) -> tuple[nn.Module, dict[str, Any]]:
    """Returns a model whose head is its embedding."""
    return Tiny(width=16, num_layers=2, tied=True), _tokens(micro_batch_size, 40)


def frozen(micro_batch_size: int) -> tuple[nn.Module, dict[str, Any]]:
    """Returns a model with a frozen embedding, through which no gradient flows, and a layer that is half frozen."""
    model = Tiny(width=16, num_layers=2)
    model.embed.requires_grad_(requires_grad=False)
    layer = model.layers[0]
    assert isinstance(layer, Layer)
    layer.up.requires_grad_(requires_grad=False)
    return model, _tokens(micro_batch_size, 40)


class WithUnused(Tiny):
    """A model with a layer that no forward runs."""

    def __init__(self) -> None:
        super().__init__(width=16, num_layers=2)
        self.unused = Layer(16)


def unused(micro_batch_size: int) -> tuple[nn.Module, dict[str, Any]]:
    """Returns a model with a block that is never gathered, but reduced and spread."""
    return WithUnused(), _tokens(micro_batch_size, 40)


class Gpt(nn.Module):
    """A model in which activations, embedding and layers all count: for memory."""

    def __init__(self, width: int, num_layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the loss of guessing each token's successor."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def gpt(
    micro_batch_size: int, length: int = 16, width: int = 256, num_layers: int = 4, vocabulary: int = 8192
) -> tuple[nn.Module, dict[str, Any]]:
    """Returns a small language model; that of the defaults has 6.3 million parameters."""
    return Gpt(width, num_layers, vocabulary), _tokens(micro_batch_size, vocabulary, length)


def _tokens(num_samples: int, vocabulary: int, length: int = 9) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {"tokens": torch.randint(0, vocabulary, (num_samples, length), generator=generator)}
