"""Plain torch: the constructs that a tracer has to survive, one model each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.zoo.plain import WIDTH, Layers, plain, residual_layer, some_ids


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
        self.layer = residual_layer()

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


class Normalized(Layers):
    """Weights are computed from their directions and lengths, or divided by their largest singular value."""

    def __init__(self) -> None:
        super().__init__()
        self.by_length = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.by_spectrum = parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.by_spectrum(self.by_length(x)))


branching = plain(Branching, notes="an if on activations")


selecting = plain(Selecting, notes="a mask of activations selects rows")


selecting_by_ids = plain(SelectingByIds, some_ids, "a mask of whole numbers selects rows")


shared = plain(Shared, notes="one block at several places")


re_entered = plain(ReEntered, notes="blocks called in a loop")


in_place = plain(InPlace, notes="relu_, add_, mul_")


empty = plain(Empty, notes="a parameter of no elements, and one that is not used")


checkpointed = plain(lambda: Checkpointed(use_reentrant=False), notes="its own checkpoints")


checkpointed_reentrant = plain(lambda: Checkpointed(use_reentrant=True), notes="its own checkpoints, of the older kind")


own_derivative = plain(OwnDerivative, notes="a custom autograd function")


normalized = plain(Normalized, notes="weight norm, spectral norm")
