"""Functions that models call on tensors, and tensors whose axes lie in memory in several orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

Function = Callable[[torch.Tensor], Any]

LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "3 axes": lambda: torch.randn(2, 4, 6).requires_grad_(),
    "3 axes exchanged": lambda: torch.randn(2, 6, 4).requires_grad_().transpose(1, 2),
    "3 axes in bf16": lambda: torch.randn(2, 4, 6).bfloat16().requires_grad_(),
    "4 axes": lambda: torch.randn(2, 4, 6, 6).requires_grad_(),
    "channels last": lambda: torch.randn(2, 4, 6, 6).requires_grad_().contiguous(memory_format=torch.channels_last),
    "channels moved": lambda: torch.randn(2, 6, 4, 6).requires_grad_().permute(0, 2, 3, 1),
    "heads": lambda: torch.randn(2, 6, 4, 6).requires_grad_().transpose(1, 2),
}


def _trained(*shape: int) -> torch.Tensor:
    return torch.ones(shape, requires_grad=True)


def _complex(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2).contiguous())


ANY: dict[str, Function] = {
    "softmax": lambda x: functional.softmax(x, -1),
    "softmax of the second axis": lambda x: functional.softmax(x, 1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "glu": lambda x: functional.glu(x, -1),
    "dropout": lambda x: functional.dropout(x, 0.1),
    "linear": lambda x: functional.linear(x, _trained(5, x.shape[-1]).to(x.dtype), _trained(5).to(x.dtype)),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "einsum": lambda x: torch.einsum("b...i,b...j->bij", x, x),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(2, -1)[0],
    "amax": lambda x: x.amax(1),
    "var": lambda x: x.var(-1),
    "norm": lambda x: x.norm(dim=-1),
    "normalize": lambda x: functional.normalize(x, dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "roll": lambda x: x.roll(1, 1),
    "roll of two axes": lambda x: x.roll((1, 1), (1, 2)),
    "flip": lambda x: x.flip(1),
    "tril": lambda x: x.tril(),
    "reshape": lambda x: x.reshape(x.shape[0], -1),
    "split": lambda x: [part * 2 for part in torch.split(x, 1, 1)],
    "unbind": lambda x: [part * 2 for part in x.unbind(1)],
    "unfold": lambda x: x.unfold(1, 2, 1) * 2,
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "pad": lambda x: functional.pad(x, (1, 1)),
    "masked_fill": lambda x: x.masked_fill(torch.ones(x.shape, dtype=torch.bool), 0.0),
    "index": lambda x: x[:, torch.tensor([0, 1, 1])],
    "index_select": lambda x: x.index_select(1, torch.tensor([0, 1, 1])),
    "gather": lambda x: x.gather(1, torch.zeros(x.shape, dtype=torch.int64)),
    "index_add": lambda x: torch.zeros(x.shape, dtype=x.dtype).index_add(1, torch.arange(x.shape[1]), x),
    "scatter_add": lambda x: torch.zeros(x.shape, dtype=x.dtype).scatter_add(
        1, torch.zeros(x.shape, dtype=torch.int64), x
    ),
    "in place": lambda x: (x * 1).add_(x).relu_(),
    "to fp64": lambda x: x.double() * 2,
    "cdist": lambda x: torch.cdist(x.float(), x.float()),
    "rfft": lambda x: torch.fft.rfft(x.float()).abs(),
    "rotary": lambda x: torch.view_as_real(
        _complex(x) * torch.polar(torch.ones(x.shape[-1] // 2), torch.ones(x.shape[-1] // 2))
    ).flatten(-2),
}

OF_IMAGES: dict[str, Function] = {
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2),
    "interpolate bilinear": lambda x: functional.interpolate(x, size=(7, 5), mode="bilinear"),
    "interpolate bicubic": lambda x: functional.interpolate(x, size=(7, 5), mode="bicubic"),
    "interpolate antialias": lambda x: functional.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
    "grid_sample": lambda x: functional.grid_sample(x, torch.zeros(2, 3, 3, 2).requires_grad_()),
    "depthwise convolution": lambda x: functional.conv2d(x, _trained(x.shape[1], 1, 3, 3), groups=x.shape[1]),
    "max_pool2d": lambda x: functional.max_pool2d(x, 2),
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
    "pad reflect": lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad replicate": lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "channel_shuffle": lambda x: functional.channel_shuffle(x, 2),
    "windows": lambda x: x[:, :, :4, :4].reshape(2, 4, 2, 2, 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, 4) * 1,
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "attention with mask": lambda x: functional.scaled_dot_product_attention(
        x, x, x, torch.zeros(x.shape[-2], x.shape[-2])
    ),
    "attention with dropout": lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
}
