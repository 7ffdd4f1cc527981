"""A module of each kind of torch.nn with inputs, small and with awkward strides among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(0, 4, shape)


def last(*shape: int) -> torch.Tensor:
    """Channels last in memory."""
    kind = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return real(*shape).contiguous(memory_format=kind)


def turned(*shape: int) -> torch.Tensor:
    """Its last two axes exchanged, as a transformer gives its tokens to a convolution."""
    return real(*shape).transpose(1, 2)


class Unpooling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled, places = nn.functional.max_pool2d(x, 2, return_indices=True)
        return nn.functional.max_unpool2d(pooled, places, [2, 2])


def _twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, x, x


CONVOLUTIONS: dict[str, Case] = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), lambda: (real(2, 4, 9),)),
    "Conv1d of tokens": (lambda: nn.Conv1d(4, 6, 3, padding=1), lambda: (turned(2, 9, 4),)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2), lambda: (real(2, 4, 9, 8),)),
    "Conv2d without bias": (lambda: nn.Conv2d(4, 8, 1, bias=False), lambda: (real(2, 4, 9, 8),)),
    "Conv2d in groups": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding="same"), lambda: (real(2, 4, 9, 8),)),
    "Conv2d of patches": (lambda: nn.Conv2d(3, 8, 4, stride=4), lambda: (torch.randn(2, 3, 16, 16),)),
    "Conv2d of channels last": (lambda: nn.Conv2d(4, 6, 3), lambda: (last(2, 4, 9, 8),)),
    "Conv2d with channels last": (
        lambda: nn.Conv2d(4, 6, 3, stride=2).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        lambda: (real(2, 4, 9, 8),),
    ),
    "Conv3d": (lambda: nn.Conv3d(2, 4, 3, padding=1), lambda: (real(2, 2, 5, 6, 7),)),
    "Conv3d of channels last": (lambda: nn.Conv3d(2, 4, 3), lambda: (last(2, 2, 5, 6, 7),)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), lambda: (real(2, 4, 9),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), lambda: (real(2, 4, 5, 6),)),
    "ConvTranspose2d of channels last": (lambda: nn.ConvTranspose2d(4, 6, 3), lambda: (last(2, 4, 5, 6),)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 4, 3), lambda: (real(2, 2, 5, 4, 3),)),
    "Fold": (lambda: nn.Fold((4, 5), (2, 2)), lambda: (real(2, 12, 12),)),
    "Unfold": (lambda: nn.Unfold((2, 2)), lambda: (real(2, 3, 4, 5),)),
}

NORMALIZATIONS: dict[str, Case] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), lambda: (real(4, 6),)),
    "BatchNorm1d of sequences": (lambda: nn.BatchNorm1d(6), lambda: (real(4, 6, 5),)),
    "BatchNorm1d of tokens": (lambda: nn.BatchNorm1d(6), lambda: (turned(4, 5, 6),)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(6), lambda: (real(4, 6, 5, 3),)),
    "BatchNorm2d of channels last": (lambda: nn.BatchNorm2d(6), lambda: (last(4, 6, 5, 3),)),
    "BatchNorm2d without statistics": (
        lambda: nn.BatchNorm2d(6, track_running_stats=False),
        lambda: (real(4, 6, 5, 3),),
    ),
    "BatchNorm2d in bf16": (lambda: nn.BatchNorm2d(6).bfloat16(), lambda: (torch.randn(4, 6, 5, 3).bfloat16(),)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(6), lambda: (real(4, 6, 5, 3, 2),)),
    "InstanceNorm1d of tokens": (lambda: nn.InstanceNorm1d(6), lambda: (turned(4, 5, 6),)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(6, affine=True), lambda: (real(4, 6, 5, 3),)),
    "LayerNorm": (lambda: nn.LayerNorm(6), lambda: (real(4, 5, 6),)),
    "LayerNorm of channels": (lambda: nn.LayerNorm(6), lambda: (turned(4, 6, 5),)),
    "LayerNorm in bf16": (lambda: nn.LayerNorm(6).bfloat16(), lambda: (torch.randn(4, 5, 6).bfloat16(),)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6), lambda: (real(4, 6, 5, 3),)),
    "GroupNorm of channels last": (lambda: nn.GroupNorm(2, 6), lambda: (last(4, 6, 5, 3),)),
    "GroupNorm in bf16": (lambda: nn.GroupNorm(2, 6).bfloat16(), lambda: (torch.randn(4, 6, 5, 3).bfloat16(),)),
    "RMSNorm": (lambda: nn.RMSNorm(6), lambda: (real(4, 5, 6),)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), lambda: (real(2, 6, 5, 3),)),
    # Under autocast, what comes out of a product is bf16 and the weights of the norm are not.
    "Linear and LayerNorm": (lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)), lambda: (real(4, 5, 6),)),
    "Conv2d and BatchNorm2d": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(True)),
        lambda: (real(2, 4, 5, 6),),
    ),
    "Conv2d and GroupNorm": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.GroupNorm(2, 6)),
        lambda: (real(2, 4, 5, 6),),
    ),
    "Conv2d and InstanceNorm2d": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.InstanceNorm2d(6)),
        lambda: (real(2, 4, 5, 6),),
    ),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), lambda: (real(3, 4),)),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), lambda: (real(3, 4),)),
}

PRODUCTS: dict[str, Case] = {
    "Linear": (lambda: nn.Linear(6, 5), lambda: (real(3, 7, 6),)),
    "Bilinear": (lambda: nn.Bilinear(4, 5, 6), lambda: (real(3, 4), real(3, 5))),
    "Embedding": (lambda: nn.Embedding(10, 6, padding_idx=0), lambda: (whole(3, 4),)),
    "EmbeddingBag sum": (lambda: nn.EmbeddingBag(10, 6, mode="sum"), lambda: (whole(3, 4),)),
    "EmbeddingBag mean": (lambda: nn.EmbeddingBag(10, 6), lambda: (whole(3, 4),)),
    "EmbeddingBag max": (lambda: nn.EmbeddingBag(10, 6, mode="max"), lambda: (whole(3, 4),)),
    "EmbeddingBag of offsets": (
        lambda: nn.EmbeddingBag(10, 6, mode="sum"),
        lambda: (whole(12), torch.tensor([0, 4, 7])),
    ),
    "EmbeddingBag with weights": (
        lambda: nn.EmbeddingBag(10, 6, mode="sum"),
        lambda: (whole(12), torch.tensor([0, 4, 7]), real(12)),
    ),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: _twice(real(3, 5, 8))),
    "MultiheadAttention with dropout": (
        lambda: nn.MultiheadAttention(8, 2, dropout=0.1),
        lambda: _twice(real(3, 5, 8)),
    ),
    "MultiheadAttention of others": (
        lambda: nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
        lambda: (real(3, 5, 8), real(4, 5, 4), real(4, 5, 6)),
    ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda: (real(3, 5, 8),),
    ),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(8, 2, 16), lambda: (real(3, 5, 8), real(4, 5, 8))),
    "Transformer": (lambda: nn.Transformer(8, 2, 1, 1, 16), lambda: (real(3, 5, 8), real(4, 5, 8))),
    "CosineSimilarity": (nn.CosineSimilarity, lambda: (real(3, 4), real(3, 4))),
    "PairwiseDistance": (nn.PairwiseDistance, lambda: (real(3, 4), real(3, 4))),
}

RECURRENCES: dict[str, Case] = {
    "LSTM": (lambda: nn.LSTM(4, 5, 2, batch_first=True), lambda: (real(3, 6, 4),)),
    "LSTM both ways": (lambda: nn.LSTM(4, 5, 2, bidirectional=True, dropout=0.5), lambda: (real(6, 3, 4),)),
    "LSTM with projection": (lambda: nn.LSTM(4, 5, proj_size=3), lambda: (real(6, 3, 4),)),
    "LSTM without bias": (lambda: nn.LSTM(4, 5, bias=False), lambda: (real(6, 3, 4),)),
    "LSTM of 300 by 64": (lambda: nn.LSTM(300, 64), lambda: (real(7, 5, 300),)),
    "GRU": (lambda: nn.GRU(4, 5, 2), lambda: (real(6, 3, 4),)),
    "GRU both ways": (lambda: nn.GRU(4, 5, 2, bidirectional=True, dropout=0.1), lambda: (real(6, 3, 4),)),
    "RNN": (lambda: nn.RNN(4, 5), lambda: (real(6, 3, 4),)),
    "RNN of relu": (lambda: nn.RNN(4, 5, nonlinearity="relu", batch_first=True), lambda: (real(6, 3, 4),)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 5), lambda: (real(3, 4),)),
    "GRUCell": (lambda: nn.GRUCell(4, 5), lambda: (real(3, 4),)),
    "RNNCell": (lambda: nn.RNNCell(4, 5), lambda: (real(3, 4),)),
}

_ELEMENTWISE: tuple[Callable[[], nn.Module], ...] = (
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Mish, nn.GLU, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Hardswish, nn.Sigmoid, nn.Tanh),
    *(nn.LogSigmoid, nn.Softshrink, nn.RReLU, nn.PReLU, nn.Dropout, nn.AlphaDropout),
)

ELEMENTWISE: dict[str, Case] = {
    **{str(kind.__name__): (kind, lambda: (real(3, 4),)) for kind in _ELEMENTWISE},
    "GELU by tanh": (lambda: nn.GELU("tanh"), lambda: (real(3, 4),)),
    "ReLU in place": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), lambda: (real(3, 4),)),
    "Dropout in place": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1, True)), lambda: (real(3, 4),)),
    "Softmax": (lambda: nn.Softmax(-1), lambda: (real(3, 4),)),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), lambda: (real(3, 4, 5),)),
    "Dropout1d": (nn.Dropout1d, lambda: (real(3, 4, 5),)),
    "Dropout2d": (nn.Dropout2d, lambda: (real(3, 4, 5, 6),)),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout, lambda: (real(3, 4, 5),)),
}

POOLS: dict[str, Case] = {
    "MaxPool1d": (lambda: nn.MaxPool1d(2), lambda: (real(2, 3, 8),)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), lambda: (real(2, 3, 8, 8),)),
    "MaxPool2d of channels last": (lambda: nn.MaxPool2d(2), lambda: (last(2, 3, 8, 8),)),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), lambda: (real(2, 3, 8, 8, 8),)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), lambda: (real(2, 3, 8),)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), lambda: (real(2, 3, 8, 8),)),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), lambda: (real(2, 3, 8, 8, 8),)),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(3), lambda: (real(2, 3, 8),)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(3), lambda: (real(2, 3, 8, 8),)),
    "AdaptiveAvgPool2d to one": (lambda: nn.AdaptiveAvgPool2d(1), lambda: (real(2, 3, 8, 8),)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(3), lambda: (real(2, 3, 8, 8),)),
    "FractionalMaxPool2d": (lambda: nn.FractionalMaxPool2d(2, output_size=3), lambda: (real(2, 3, 8, 8),)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), lambda: (real(2, 3, 8, 8),)),
    "MaxUnpool2d": (Unpooling, lambda: (real(2, 3, 8, 8),)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), lambda: (real(2, 3, 8, 8),)),
    "Upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: (real(2, 3, 8, 8),)),
    "Upsample bicubic": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), lambda: (real(2, 3, 8, 8),)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), lambda: (real(2, 4, 3, 3),)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), lambda: (real(2, 4, 3, 3),)),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d(1), lambda: (real(2, 4, 3),)),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(1), lambda: (real(2, 4, 3, 3),)),
    "CircularPad2d": (lambda: nn.CircularPad2d(1), lambda: (real(2, 4, 3, 3),)),
}

LOSSES: dict[str, Case] = {
    "CrossEntropyLoss": (nn.CrossEntropyLoss, lambda: (real(6, 5), whole(6))),
    "CrossEntropyLoss of images": (nn.CrossEntropyLoss, lambda: (real(6, 5, 3, 4), whole(6, 3, 4))),
    "CrossEntropyLoss smoothed": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), lambda: (real(6, 5), whole(6))),
    "CrossEntropyLoss weighted": (lambda: nn.CrossEntropyLoss(torch.ones(5)), lambda: (real(6, 5), whole(6))),
    "CrossEntropyLoss of probabilities": (nn.CrossEntropyLoss, lambda: (real(6, 5), torch.rand(6, 5))),
    "NLLLoss": (nn.NLLLoss, lambda: (real(6, 5), whole(6))),
    "MSELoss": (nn.MSELoss, lambda: (real(6, 5), torch.randn(6, 5))),
    "L1Loss": (nn.L1Loss, lambda: (real(6, 5), torch.randn(6, 5))),
    "SmoothL1Loss": (nn.SmoothL1Loss, lambda: (real(6, 5), torch.randn(6, 5))),
    "HuberLoss": (nn.HuberLoss, lambda: (real(6, 5), torch.randn(6, 5))),
    "BCELoss": (nn.BCELoss, lambda: (real(6, 5).sigmoid(), torch.rand(6, 5))),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, lambda: (real(6, 5), torch.rand(6, 5))),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), lambda: (real(6, 5), torch.rand(6, 5))),
    "CTCLoss": (
        nn.CTCLoss,
        lambda: (real(12, 2, 5).log_softmax(-1), whole(2, 3) + 1, torch.tensor([12, 12]), torch.tensor([3, 2])),
    ),
    "TripletMarginLoss": (nn.TripletMarginLoss, lambda: (real(3, 4), real(3, 4), real(3, 4))),
    "MarginRankingLoss": (nn.MarginRankingLoss, lambda: (real(3), real(3), torch.ones(3))),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, lambda: (real(3, 4), real(3, 4), torch.ones(3))),
    "MultiMarginLoss": (nn.MultiMarginLoss, lambda: (real(6, 5), whole(6))),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, lambda: (real(6, 5), whole(6, 5))),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda: (real(6, 5), torch.ones(6, 5))),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, lambda: (real(6, 5), torch.rand(6, 5))),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, lambda: (real(6, 5), torch.randn(6, 5), torch.ones(6, 5))),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]),
        lambda: (real(6, 8), torch.tensor([0, 3, 6, 9, 12, 19])),
    ),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, lambda: (real(6, 5), torch.ones(6, 5))),
}

CASES: dict[str, Case] = {
    **CONVOLUTIONS,
    **NORMALIZATIONS,
    **PRODUCTS,
    **RECURRENCES,
    **ELEMENTWISE,
    **POOLS,
    **LOSSES,
}
