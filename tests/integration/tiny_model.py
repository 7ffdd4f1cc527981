"""Small models with what trips launchers: keyword arguments, a module's own parameter, a buffer, a random example."""

import os
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x, *, gain):
        hidden = nn.functional.gelu(self.up(self.norm(x) * gain))
        return x + self.scale * self.down(hidden)


class Net(nn.Module):
    def __init__(self, width, depth, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab)
        self.register_buffer("gain", 1 + torch.rand(width))
        # From outside of the modules that own them, as some models do: what DeepSpeed has sharded by then is missed.
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.1)

    def forward(self, tokens, soft):
        x = self.embed(tokens) + soft
        for block in self.blocks:
            x = block(x, gain=self.gain.to(x.dtype))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.flatten())


class Late(Net):
    """Copies its layers, and initializes weights by their places, once the modules that own them are complete."""

    def __init__(self, width, depth, vocab):
        super().__init__(width, depth, vocab)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        with torch.no_grad():
            self.embed.weight[0].zero_()
            for parameter in self.encoder.parameters():
                if parameter.shape == (2 * width, width):
                    nn.init.xavier_uniform_(parameter)

    def forward(self, tokens, soft):
        return super().forward(tokens, self.encoder(soft))


class Borrowing(Net):
    """Guesses by the embedding's weight, without a call of the embedding."""

    def forward(self, tokens, soft):
        x = self.embed(tokens) + soft
        for block in self.blocks:
            x = block(x, gain=self.gain.to(x.dtype))
        logits = self.head(x) + nn.functional.linear(x, self.embed.weight)
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


class Failing(Net):
    """Fails on one rank, in the middle of training."""

    def forward(self, tokens, soft):
        if os.environ.get("RANK") == "1" and self.training:
            raise ArithmeticError("the seventh seal is broken")
        return super().forward(tokens, soft)


class Slow(Net):
    """Trains for long enough to be interrupted."""

    def forward(self, tokens, soft):
        time.sleep(0.05)
        return super().forward(tokens, soft)


class Exploding(Net):
    """Has a loss that is not finite."""

    def forward(self, tokens, soft):
        return super().forward(tokens, soft) * float("inf")


def net(micro_batch_size, sequence_length=16, model: str = "Net"):
    classes = {each.__name__: each for each in (Net, Late, Borrowing, Failing, Slow, Exploding)}
    made = classes[model](width=32, depth=3, vocab=64)
    tokens = torch.randint(0, 64, (micro_batch_size, sequence_length))
    return made, {"tokens": tokens, "soft": torch.randn(micro_batch_size, sequence_length, 32)}


class Samples:
    """A user's own dataset: every sample is the same."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"tokens": torch.full((16,), 7), "soft": torch.zeros(16, 32)}
