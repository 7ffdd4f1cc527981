"""Plain torch: a recommender, recurrent layers, torch's own transformers, convolutions, a scan written by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.zoo.entry import Batch, Entry, network, tokens

WIDTH = 32


def vectors(micro_batch_size: int) -> Batch:
    """Returns short sequences of floats."""
    return {"x": torch.randn(micro_batch_size, 8, WIDTH)}


def _images(micro_batch_size: int) -> Batch:
    return {"x": torch.randn(micro_batch_size, 3, 32, 32)}


def some_ids(micro_batch_size: int) -> Batch:
    """Returns short sequences of whole numbers."""
    return {"ids": tokens(micro_batch_size, 16, end=64)}


def plain(build: Any, batch: Any = vectors, notes: str = "") -> Entry:
    """Returns the entry of a module with a loss of its own."""
    return network(build, batch, family="plain torch", notes=notes)


class Recommender(nn.Module):
    """Bags of looked-up rows and dense features, whose products meet in a small network on top."""

    def __init__(self, num_tables: int = 4, rows: int = 1000, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(num_tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width))
        self.top = nn.Sequential(nn.Linear(width + (num_tables + 1) * num_tables // 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, **bags: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        looked_up = [table(bags[f"bag_{position}"]) for position, table in enumerate(self.tables)]
        stacked = torch.stack([x, *looked_up], 1)
        products = stacked @ stacked.transpose(1, 2)
        rows, columns = torch.tril_indices(stacked.shape[1], stacked.shape[1], -1)
        return self.top(torch.cat([x, products[:, rows, columns]], 1)).sigmoid().mean()


def _clicks(micro_batch_size: int) -> Batch:
    return {
        "dense": torch.randn(micro_batch_size, 13),
        **{f"bag_{position}": tokens(micro_batch_size, 5, end=1000) for position in range(4)},
    }


class Recurrent(nn.Module):
    """Embeds, runs a recurrent layer, predicts."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.layer = layer
        self.head = nn.Linear(width, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.layer(self.embedding(ids))
        return functional.cross_entropy(self.head(states).flatten(0, 1), ids.flatten())


class Layers(nn.Module):
    """Residual layers; subclasses run them in their own ways."""

    def __init__(self, num_layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([residual_layer() for _ in range(num_layers)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).square().mean()


def residual_layer() -> nn.Module:
    """Returns what `Layers` adds to its stream."""
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))


class Tied(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList([residual_layer() for _ in range(3)])
        self.head = nn.Linear(WIDTH, 64, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class Scan(nn.Module):
    """A selective scan as a loop, written by hand."""

    def __init__(self, num_layers: int = 3, num_states: int = 8) -> None:
        super().__init__()
        self.in_projections = nn.ModuleList([nn.Linear(WIDTH, 2 * WIDTH) for _ in range(num_layers)])
        self.rates = nn.ParameterList([nn.Parameter(torch.zeros(WIDTH, num_states)) for _ in range(num_layers)])
        self.mixers = nn.ModuleList([nn.Linear(WIDTH, 2 * num_states + WIDTH) for _ in range(num_layers)])
        self.num_states = num_states

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for into, rate, mixer in zip(self.in_projections, self.rates, self.mixers, strict=True):
            inputs, gate = into(x).chunk(2, -1)
            read, write, step = mixer(inputs).split([self.num_states, self.num_states, WIDTH], -1)
            step = functional.softplus(step)
            decay = torch.exp(-step.unsqueeze(-1) * rate.exp())
            written = (step * inputs).unsqueeze(-1) * write.unsqueeze(-2)
            state = torch.zeros_like(written[:, 0])
            outputs = []
            for place in range(x.shape[1]):
                state = decay[:, place] * state + written[:, place]
                outputs.append((state @ read[:, place].unsqueeze(-1)).squeeze(-1))
            x = x + torch.stack(outputs, 1) * functional.silu(gate)
        return x.square().mean()


class Convolutional(nn.Module):
    """Convolutions with batch normalization and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(layer for inputs, outputs in ((3, 16), (16, 32)) for layer in _stage(inputs, outputs)),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1)).square().mean()


def _stage(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


class Averaged(nn.Module):
    """A stack of torch's own layers."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x).square().mean()


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True)
    return Averaged(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))


class Sequences(nn.Module):
    """torch's encoder and decoder, with a mask of the future."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(WIDTH, 4, 2, 2, 64, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.transformer(x, x, tgt_mask=mask, tgt_is_causal=True).square().mean()


recommender = plain(Recommender, _clicks, "EmbeddingBag")


lstm = plain(lambda: Recurrent(nn.LSTM(WIDTH, 48, 2, batch_first=True), 48), some_ids)


lstm_both_ways = plain(lambda: Recurrent(nn.LSTM(WIDTH, 24, batch_first=True, bidirectional=True), 48), some_ids)


gru = plain(lambda: Recurrent(nn.GRU(WIDTH, 48, 2, batch_first=True, dropout=0.1), 48), some_ids)


rnn = plain(lambda: Recurrent(nn.RNN(WIDTH, 48, batch_first=True), 48), some_ids)


residual = plain(Layers)


convolutional = plain(Convolutional, _images, "BatchNorm")


tied = plain(Tied, some_ids, "tied weights")


scan = plain(Scan, notes="a hand-written scan")


torch_encoder = plain(_encoder, notes="nn.TransformerEncoder")


torch_transformer = plain(Sequences, notes="nn.Transformer")
