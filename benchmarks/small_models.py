"""Small models of other kinds than transformers of equal layers: a mixture of experts, and convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Experts(nn.Module):
    """Every token through the two experts that a router likes best; experts are stacked, and all are computed."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts, bias=False)
        self.up = nn.Parameter(torch.randn(num_experts, width, 2 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(num_experts, 2 * width, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, sequence, width) to the same shape."""
        weights = self.router(x).softmax(-1)
        threshold = weights.topk(2, dim=-1).values[..., -1:]
        weights = weights * (weights >= threshold)
        hidden = functional.gelu(torch.einsum("bsw,ewh->bseh", x, self.up))
        return torch.einsum("bseh,ehw,bse->bsw", hidden, self.down, weights)


class Layer(nn.Module):
    """A feed-forward network of experts beside a residual path, after a mean over the tokens before."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.experts = Experts(width, num_experts)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, sequence, width) to the same shape."""
        counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype).view(1, -1, 1)
        x = x + self.mix(self.norm(x).cumsum(1) / counts)
        return x + self.experts(self.norm(x))


class Mixture(nn.Module):
    """Guesses each token's successor."""

    def __init__(self, vocabulary: int, width: int, depth: int, num_experts: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, num_experts) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross-entropy of `labels` (batch, sequence) after `tokens` (batch, sequence)."""
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


class Residual(nn.Module):
    """Two convolutions beside a residual path, normalized by groups of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, channels, height, width) to the same shape."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(x + self.norms[1](self.second(inner)))


class Cnn(nn.Module):
    """Names what is in a picture."""

    def __init__(self, channels: int, depth: int, num_names: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        self.blocks = nn.ModuleList(Residual(channels) for _ in range(depth))
        self.head = nn.Linear(channels, num_names)

    def forward(self, pixels: Tensor, names: Tensor) -> Tensor:
        """Returns the mean cross-entropy of `names` (batch,) for `pixels` (batch, 3, height, width)."""
        x = self.stem(pixels)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x.mean((2, 3))).float(), names)


def mixture(
    micro_batch_size: int, sequence_length: int = 64, width: int = 192, depth: int = 8, experts: int = 8
) -> tuple[nn.Module, dict[str, Tensor]]:
    """Returns a mixture of 8 x 8 experts (13 million parameters), and a batch."""
    tokens = torch.arange(micro_batch_size * sequence_length).reshape(micro_batch_size, sequence_length) % 64
    return Mixture(4096, width, depth, experts), {"tokens": tokens, "labels": tokens.roll(-1, dims=1)}


def cnn(
    micro_batch_size: int, channels: int = 256, depth: int = 9, side: int = 32
) -> tuple[nn.Module, dict[str, Tensor]]:
    """Returns convolutions of equal shapes (11 million parameters), and a batch of pictures."""
    names = torch.arange(micro_batch_size) % 100
    return Cnn(channels, depth, 100), {"pixels": torch.randn(micro_batch_size, 3, side, side), "names": names}
