"""Models of which each has something that a plain stack of layers has not: for tests of the runtime."""

from __future__ import annotations

import torch
from fsdp_training import SAMPLES, Layer, Tiny, guessed, tokens_of
from torch import Tensor, nn


class Uneven(Tiny):
    """Rows that do not divide by the ranks, elements that do not divide by slices, fewer rows than ranks."""

    def __init__(self) -> None:
        super().__init__(width=7, num_layers=2, vocabulary=41)
        self.layers[1].down = nn.Sequential(nn.Linear(21, 3), nn.Linear(3, 7, bias=False))


class Frozen(Tiny):
    """A frozen embedding, a frozen layer, and a layer of which a part is frozen."""

    def __init__(self) -> None:
        super().__init__()
        for frozen in (self.embed, self.layers[0], self.layers[1].up):
            frozen.requires_grad_(requires_grad=False)
        self.layers[1].norm.bias.requires_grad_(requires_grad=False)


class Tied(Tiny):
    """A head that has the embedding's weight."""

    def __init__(self) -> None:
        super().__init__(tied=True)


class TiedWithBias(Tiny):
    """A head that has the embedding's weight and a bias of its own: two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight


class Twice(Tiny):
    """Layers that run twice."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the loss."""
        x = self.embed(tokens)
        for layer in [*self.layers, *self.layers]:
            x = layer(x)
        return guessed(self.head(self.norm(x)), tokens)


class Turning(Tiny):
    """Layers that run forwards or backwards, or not all, as the batch says."""

    def forward(self, batch: tuple[Tensor, int]) -> Tensor:
        """Returns the loss."""
        tokens, turn = batch
        x = self.embed(tokens)
        for layer in ([*self.layers], [*self.layers][::-1], [*self.layers][:2])[turn]:
            x = layer(x)
        return guessed(self.head(self.norm(x)), tokens)


def turning_batch(step: int, micro_batch: int, rank: int) -> tuple[Tensor, int]:
    """Returns tokens, and how the layers run: in their order in the first step."""
    return tokens_of(step, micro_batch, rank), step % 3


class Experts(nn.Module):
    """Of which a rank's tokens may choose none."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

    def forward(self, x: Tensor, chosen: int) -> Tensor:
        """Returns x and what the chosen expert adds."""
        return x + self.experts[chosen](x)


class Choosing(Tiny):
    """A layer whose expert the rank chooses: the others have no gradients there."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1] = Experts(16)

    def forward(self, batch: tuple[Tensor, int]) -> Tensor:
        """Returns the loss."""
        tokens, chosen = batch
        x = self.layers[1](self.layers[0](self.embed(tokens)), chosen)
        return guessed(self.head(self.norm(self.layers[2](x))), tokens)


def choosing_batch(step: int, micro_batch: int, rank: int) -> tuple[Tensor, int]:
    """Returns tokens, and the rank's expert: the last is never chosen."""
    return tokens_of(step, micro_batch, rank), (step + rank) % 3


class Unused(Tiny):
    """A block that never runs, and parameters that are never used in blocks that do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1].unused = nn.Parameter(torch.ones(5, 3))
        self.layers.append(Layer(16))

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the loss."""
        x = self.embed(tokens)
        for layer in self.layers[:3]:
            x = layer(x)
        return guessed(self.head(self.norm(x)), tokens)


class Odd(nn.Module):
    """Parameters of all kinds: a scalar, an integer, one that is not contiguous, one that has two names, a list."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.table = nn.Parameter(torch.arange(16) % 5, requires_grad=False)
        self.turned = nn.Parameter(torch.randn(12, 16).t())
        self.biases = nn.ParameterList([nn.Parameter(torch.randn(n)) for n in (16, 12)])
        self.again = self.turned
        self.gains = nn.ParameterDict({"first": nn.Parameter(torch.ones(1, 16))})

    def forward(self, x: Tensor) -> Tensor:
        """Returns x and what all of them make of it."""
        hidden = torch.tanh(x * self.scale @ self.turned + self.biases[1]) @ self.again.t()
        return x + (hidden + self.biases[0] + self.table) * self.gains["first"]


class WithOdd(Tiny):
    """A layer of such parameters, and a scalar at the root."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1] = Odd()
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the loss."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return guessed(self.head(self.norm(x)) * self.temperature, tokens)


class Borrowing(Tiny):
    """The embedding's weight is used without a call of the embedding, as a head; a bias by the layers after it."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the loss."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x) + self.layers[0].up.bias[:16]
        return guessed(nn.functional.linear(self.norm(x), self.embed.weight) + self.head(x), tokens)


class Attending(nn.Module):
    """Torch's own attention, whose output projection is used without a call."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Returns x and what attention adds."""
        return x + self.attention(x, x, x, need_weights=False)[0]


class WithAttention(Tiny):
    """A layer of torch's attention, and one of its encoder's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[0] = Attending(16)
        self.layers[2] = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)


class Convolving(nn.Module):
    """Convolutions with batch norms, whose running statistics are a rank's own."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([_stage(3), _stage(6)])
        self.head = nn.Linear(12, 5)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the loss of naming the images (samples, 3, 8, 8)."""
        x = images
        for stage in self.stages:
            x = stage(x)
        return nn.functional.cross_entropy(self.head(x.mean((2, 3))), torch.arange(len(images)) % 5)


def _stage(channels: int) -> nn.Module:
    wide = 2 * channels
    return nn.Sequential(nn.Conv2d(channels, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU())


def images_of(step: int, micro_batch: int, rank: int) -> Tensor:
    """Returns the images of one rank in one micro-batch."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * micro_batch + 100_003 * rank)
    return torch.randn(2 * SAMPLES, 3, 8, 8, generator=generator)


CONVOLVING_BLOCKS = ("stages.0", "stages.1", "head")
