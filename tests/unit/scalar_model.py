"""A model whose only parameter has no dimension: DeepSpeed trains it, but not at stage 3."""

import torch
from torch import Tensor, nn


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (self.factor * x).mean()


def scaled(micro_batch_size: int) -> tuple[nn.Module, dict[str, Tensor]]:
    return Scaled(), {"x": torch.ones(micro_batch_size, 3)}
