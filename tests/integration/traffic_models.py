"""Small models with what makes traffic hard to predict: odd sizes, tied, frozen and borrowed parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width + 3)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width + 3, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))
        return x + self.down(self.act(self.up(self.norm2(x))))


class TiedGPT(nn.Module):
    """Odd sizes; the head is the embedding's weight."""

    def __init__(self, width: int = 37, num_layers: int = 3, vocabulary: int = 101) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(16, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), ids.flatten())


class FrozenEncoder(nn.Module):
    """torch's own layers (their attention reads a child's parameters itself), half of them frozen."""

    def __init__(self, width: int = 24, num_layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 50, dropout=0.0, batch_first=True) for _ in range(num_layers)
        )
        self.head = nn.Linear(width, 50)
        for layer in self.layers[: num_layers // 2]:
            layer.requires_grad_(False)
        self.tokens.requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())


class Perceptron(nn.Module):
    """No repeated blocks; a parameter of the root itself; activations as modules."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(33))
        self.body = nn.Sequential(nn.Linear(33, 65), nn.ReLU(), nn.Linear(65, 129), nn.Tanh(), nn.Linear(129, 7))
        self.table = nn.Embedding(50, 33)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.body(self.table(ids) * self.scale).float().pow(2).mean()


class Peeking(nn.Module):
    """Gives two tensors on, and asks a child for its weight's type before it is called, as T5 does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width + 1)
        self.down = nn.Linear(2 * width + 1, width, bias=False)
        self.table = nn.Embedding(16, width)

    def forward(self, x: torch.Tensor, table: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        table = self.table(torch.arange(x.shape[1])) if table is None else table
        return x + self.down(self.up(x).relu().to(self.down.weight.dtype)) + table, table


class Tangled(nn.Module):
    """A layer that runs again, a module called by another, an input without gradient, what nobody uses, two outputs."""

    def __init__(self, width: int = 21) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.shared = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.layers = nn.ModuleList(Peeking(width) for _ in range(3))
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.nobody = nn.Linear(width, 5)
        self.head = nn.Linear(width, 50)
        self.gate = nn.ModuleList([self.shared, nn.Linear(width, width)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, table = self.tokens(ids), None
        for layer in self.layers:
            x, table = layer(self.shared(x), table)
        for gate in self.gate:
            x = x + gate(self.frozen(x))
        x = x + self.tokens(ids)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())


class Expert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width + 1)
        self.down = nn.Linear(2 * width + 1, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


class Experts(nn.Module):
    """Each expert is a module of its own, and is called where it has tokens: on each rank others."""

    def __init__(self, width: int, num_experts: int = 5) -> None:
        super().__init__()
        self.gate = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(width) for _ in range(num_experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2, -1)
        result = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == index)
            if rows.numel():
                result.index_add_(0, rows, expert(tokens[rows]) * weights[rows, places, None])
        return result.view_as(x)


class Mixture(nn.Module):
    """Layers of attention and experts."""

    def __init__(self, width: int = 24, num_layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(width), "mixer": nn.Linear(width, width), "moe": Experts(width)})
            for _ in range(num_layers)
        )
        self.head = nn.Linear(width, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = x + layer["mixer"](x)
            x = x + layer["moe"](layer["norm"](x))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())


MODELS = {"mixture": Mixture, "tangled": Tangled, "gpt": TiedGPT, "encoder": FrozenEncoder, "perceptron": Perceptron}


def _source(name: str) -> Callable[[int, int], tuple[nn.Module, dict[str, torch.Tensor]]]:
    def build(micro_batch_size: int, sequence_length: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
        return MODELS[name](), {"ids": torch.randint(0, 50, (micro_batch_size, sequence_length))}

    return build


gpt, encoder, perceptron, tangled = _source("gpt"), _source("encoder"), _source("perceptron"), _source("tangled")
mixture = _source("mixture")
