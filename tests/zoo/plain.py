"""Plain torch: the constructs that a tracer has to survive, one model each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.zoo.entry import Batch, Entry, network, tokens

WIDTH = 32


def _vectors(micro_batch_size: int) -> Batch:
    return {"x": torch.randn(micro_batch_size, 8, WIDTH)}


def _images(micro_batch_size: int) -> Batch:
    return {"x": torch.randn(micro_batch_size, 3, 32, 32)}


def _ids(micro_batch_size: int) -> Batch:
    return {"ids": tokens(micro_batch_size, 16, end=64)}


def _plain(build: Any, batch: Any = _vectors, notes: str = "") -> Entry:
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
        self.layers = nn.ModuleList([_layer() for _ in range(num_layers)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).square().mean()


def _layer() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))


class Branching(Layers):
    """Which layer runs depends on a sum of activations."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.layers[0] if x.sum() > 1e6 else self.layers[1]
        return self.head(chosen(x)).square().mean()


class Selecting(Layers):
    """A mask of floats' signs selects rows: their number is known in the run only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x[x[..., 0] > 0]).square().sum()


class SelectingByIds(nn.Module):
    """A mask made of whole numbers selects rows: their number follows from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.layer = _layer()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        x = x + self.layer(x)
        return x[ids % 3 == 0].square().mean()


class Shared(Layers):
    """One layer stands at several places of the list."""

    def __init__(self) -> None:
        super().__init__(2)
        first, second = self.layers
        self.layers = nn.ModuleList([first, second, first, second])


class ReEntered(Layers):
    """One layer is called in a loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            for layer in self.layers:
                x = x + layer(x)
        return self.head(x).square().mean()


class InPlace(nn.Module):
    """Activations and sums overwrite what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = functional.relu_(layer(x))
            x = (x + y).add_(1.0).mul_(0.5)
        return x.square().mean()


class Tied(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList([_layer() for _ in range(3)])
        self.head = nn.Linear(WIDTH, 64, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class Empty(Layers):
    """Has a parameter without elements, and one that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0, WIDTH))
        self.unused = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([x, self.nothing.expand(x.shape[0], 0, WIDTH)], 1))


class Checkpointed(Layers):
    """Recomputes its layers itself."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=self.use_reentrant)
        return self.head(x).square().mean()


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        result = x / (1 + x.abs())
        context.save_for_backward(result)
        return result

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (result,) = context.saved_tensors
        return gradient * (1 - result.abs()).square()


class OwnDerivative(Layers):
    """An activation with a derivative written by hand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + _Squash.apply(layer(x))
        return self.head(x).square().mean()


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


class Normalized(Layers):
    """Weights are computed from their directions and lengths, or divided by their largest singular value."""

    def __init__(self) -> None:
        super().__init__()
        self.by_length = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.by_spectrum = parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.by_spectrum(self.by_length(x)))


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


recommender = _plain(Recommender, _clicks, "EmbeddingBag")
lstm = _plain(lambda: Recurrent(nn.LSTM(WIDTH, 48, 2, batch_first=True), 48), _ids)
lstm_both_ways = _plain(lambda: Recurrent(nn.LSTM(WIDTH, 24, batch_first=True, bidirectional=True), 48), _ids)
gru = _plain(lambda: Recurrent(nn.GRU(WIDTH, 48, 2, batch_first=True, dropout=0.1), 48), _ids)
rnn = _plain(lambda: Recurrent(nn.RNN(WIDTH, 48, batch_first=True), 48), _ids)
residual = _plain(Layers)
branching = _plain(Branching, notes="an if on activations")
selecting = _plain(Selecting, notes="a mask of activations selects rows")
selecting_by_ids = _plain(SelectingByIds, _ids, "a mask of whole numbers selects rows")
shared = _plain(Shared, notes="one block at several places")
re_entered = _plain(ReEntered, notes="blocks called in a loop")
in_place = _plain(InPlace, notes="relu_, add_, mul_")
convolutional = _plain(Convolutional, _images, "BatchNorm")
tied = _plain(Tied, _ids, "tied weights")
empty = _plain(Empty, notes="a parameter of no elements, and one that is not used")
checkpointed = _plain(lambda: Checkpointed(use_reentrant=False), notes="its own checkpoints")
checkpointed_reentrant = _plain(
    lambda: Checkpointed(use_reentrant=True), notes="its own checkpoints, of the older kind"
)
own_derivative = _plain(OwnDerivative, notes="a custom autograd function")
scan = _plain(Scan, notes="a hand-written scan")
normalized = _plain(Normalized, notes="weight norm, spectral norm")
torch_encoder = _plain(_encoder, notes="nn.TransformerEncoder")
torch_transformer = _plain(Sequences, notes="nn.Transformer")
