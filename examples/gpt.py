"""A GPT of a few dozen lines: copy it, change it, and plan it with `shardplan plan examples/gpt.py:gpt`.

`gpt` is all that a planner needs: a function of the micro-batch size and the sequence length that returns a module and
an example batch. Its further arguments are set by `--model-arg`, such as `--model-arg depth=24`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset


class Attention(nn.Module):
    """Causal self-attention over the whole sequence."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, sequence, width) to the same shape."""
        batch, sequence, width = x.shape
        heads = (batch, sequence, self.num_heads, width // self.num_heads)
        query, key, value = (part.view(heads).transpose(1, 2) for part in self.project_in(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project_out(mixed.transpose(1, 2).reshape(batch, sequence, width))


class Layer(nn.Module):
    """One transformer layer: attention, then a feed-forward network, each beside a residual path."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, num_heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, sequence, width) to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class GPT(nn.Module):
    """Embeddings, a stack of layers, and a head that predicts the next token."""

    def __init__(self, vocab_size: int, sequence_length: int, width: int, depth: int, heads: int, tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(sequence_length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.apply(_initialize)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross-entropy of `labels` (batch, sequence) after `tokens` (batch, sequence)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def gpt(
    micro_batch_size: int,
    sequence_length: int = 128,
    width: int = 512,
    depth: int = 6,
    heads: int = 8,
    vocab: int = 4096,
    tied: bool = False,
) -> tuple[nn.Module, dict[str, Tensor]]:
    """Returns the model (23 million parameters as it stands) and a batch of `micro_batch_size` samples.

    The tokens stay within the first 64 of the vocabulary, so that a few steps of training show in the loss.
    """
    model = GPT(vocab, sequence_length, width, depth, heads, tied)
    tokens = torch.arange(micro_batch_size * sequence_length).reshape(micro_batch_size, sequence_length) % min(
        64, vocab
    )
    return model, {"tokens": tokens, "labels": tokens.roll(-1, dims=1)}


def small_gpt(micro_batch_size: int, sequence_length: int = 64) -> tuple[nn.Module, dict[str, Tensor]]:
    """Returns a GPT of 137 thousand parameters, which a CPU trains in no time, and a batch."""
    return gpt(micro_batch_size, sequence_length, width=64, depth=2, heads=4, vocab=256)


class Counting(Dataset[dict[str, Tensor]]):
    """Samples to try a training loop with: sequences that count on from anywhere, modulo 64."""

    def __init__(self, num_samples: int, sequence_length: int) -> None:
        self.num_samples = num_samples
        self.sequence_length = sequence_length

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Returns what the model takes, of one sample."""
        tokens = (torch.arange(self.sequence_length + 1) + 7 * index) % 64
        return {"tokens": tokens[:-1], "labels": tokens[1:]}
