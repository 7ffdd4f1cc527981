"""Results as kernels really give them, where torch's shape rules for fake tensors say something else.

Memory follows storages and strides: a result in another order of axes makes a later operator copy or not, and some
kernels keep more memory behind a result than its elements need. Found by running each kind of module on real and on
fake tensors side by side (tests/unit/test_trace_kernels.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from planner.trace.onednn_workspace import lstm_workspace_bytes

aten = torch.ops.aten

_Correction = Callable[[dict[str, Any], Any], Any]
"""From the operands by name and the result of the shape rule to the result of the kernel."""


class KernelResults(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While on, the results of some operators are corrected to those of `device`'s kernels."""

    def __init__(self, device: Literal["cuda", "cpu"]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._corrections = {**_BOTH, **(_CUDA if device == "cuda" else _CPU)}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and torch's guard against it would cost a third of the time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        correction = self._corrections.get(func)
        if correction is None and func not in _WITHOUT_RULE:
            return func(*args, **(kwargs or {}))
        names = (argument.name for argument in func._schema.arguments)
        call = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
        if correction is None:
            return _WITHOUT_RULE[func](call)
        return correction(call, func(*args, **(kwargs or {})))


def _with_storage(num_elements: int, result: torch.Tensor) -> torch.Tensor:
    """Returns a tensor like `result` at the beginning of a storage of `num_elements`; itself when that is no more."""
    if num_elements <= result.numel():
        return result
    storage = torch.empty(num_elements, dtype=result.dtype, device=result.device)
    return storage.as_strided(result.shape, result.stride())


def _in_format(result: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    if result.is_contiguous(memory_format=memory_format):
        return result
    return torch.empty_like(result, memory_format=memory_format)


def _suggested(*tensors: torch.Tensor | None) -> torch.memory_format:
    """Returns the channels-last format where one of the tensors has it, else the contiguous one.

    Source: torch 2.13, c10/core/TensorImpl.h, is_strides_like_channels_last.
    """
    for tensor in tensors:
        if tensor is None:
            continue
        kind = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        if kind is not None and torch._prims_common.suggest_memory_format(tensor) is kind:
            return kind
    return torch.contiguous_format


def _convolution(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """Source: torch 2.13, aten/src/ATen/native/ConvUtils.h, mkldnn_conv_use_channels_last, cudnn_conv_suggest_..."""
    return _in_format(result, _suggested(call["input"], call["weight"]))


def _convolution_backward(call: dict[str, Any], result: Any) -> Any:
    gradient, weight, bias = result
    memory_format = _suggested(call["input"], call["weight"])
    return (
        gradient if gradient is None else _in_format(gradient, memory_format),
        weight if weight is None else _in_format(weight, memory_format),
        bias,
    )


def _reduced_loss(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """The loss of every element is computed first, in the memory of the result.

    Source: torch 2.13, aten/src/ATen/native/Loss.cpp, mse_loss_out and others: `resize_` never gives memory back.
    """
    elements: Any = torch.broadcast_shapes(call["self"].shape, call["target"].shape)  # type: ignore[no-untyped-call]
    return result if result.dim() else _with_storage(math.prod(elements), result)


def _folded(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """The result begins as large as the input. Source: torch 2.13, aten/src/ATen/native/Col2Im.cpp, Im2Col.cpp."""
    return _with_storage(call["self"].numel(), result)


_MODE_SUM = 0


def _bags(call: dict[str, Any], result: Any) -> Any:
    """Source: torch 2.13, aten/src/ATen/native/EmbeddingBag.cpp, make_offset2bag_out: one more than indices."""
    bags, bag_of, *rest = result
    is_plain_sum = call.get("mode", _MODE_SUM) == _MODE_SUM and call.get("per_sample_weights") is None
    if is_plain_sum or not bag_of.numel():
        return result
    return (bags, _with_storage(bag_of.numel() + 1, bag_of), *rest)


def _normalized(call: dict[str, Any], result: Any) -> Any:
    """Source: torch 2.13, aten/src/ATen/native/Normalization.cpp, batch_norm_cpu."""
    first, *statistics = _statistics_of_weight(call, result)
    return (_in_format(first, _suggested(call["input"])), *statistics)


def _statistics_of_weight(call: dict[str, Any], result: Any) -> Any:
    """Mean and deviation are of the type of the weight, where that is wider than the input's.

    Source: torch 2.13, aten/src/ATen/native/cpu/mixed_data_type.h, param_scalar_type.
    """
    first, *statistics = result
    weight = call.get("weight")
    if weight is None or weight.dtype != torch.float32 or first.dtype == torch.float32:
        return result
    return (first, *(each.float() for each in statistics))


def _normalized_backward(call: dict[str, Any], result: Any) -> Any:
    """Gives the gradients that are asked for. Source: torch 2.13, the same file, batch_norm_backward_cpu."""
    source, *rest = (each if wanted else None for each, wanted in zip(result, call["output_mask"], strict=True))
    return (source if source is None else _in_format(source, _suggested(call["input"])), *rest)


def _grouped_backward(call: dict[str, Any], result: Any) -> Any:
    """The gradient of the input is of the input's type. Source: torch 2.13, the same folder, group_norm.cpp."""
    source, *rest = result
    return (source if source is None else source.to(call["input"].dtype), *rest)


def _recurrent_layer(call: dict[str, Any], result: Any) -> Any:
    """Its workspace has no bytes in the shape rule."""
    output, hidden, cell, workspace = result
    if not call["train"]:
        return result
    steps, batch, width = call["input"].shape
    num_bytes = lstm_workspace_bytes(steps, batch, width, call["hidden_size"], call["input"].element_size())
    return output, hidden, cell, torch.empty(num_bytes, dtype=torch.uint8, device=workspace.device)


def _recurrent_layer_backward(_: dict[str, Any], result: Any) -> Any:
    """The two biases have equal gradients, in two tensors."""
    source, weight, recurrent, bias, _, *states = result
    return (source, weight, recurrent, bias, torch.empty_like(bias), *states)


def _ctc(call: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each sample, and the table of probabilities that backward reads.

    Without values of the lengths of the targets, all are as long as the longest can be: a bound.
    Source: torch 2.13, aten/src/ATen/native/LossCTC.cpp, ctc_loss_allocate_outputs.
    """
    log_probs, targets, lengths = call["log_probs"], call["targets"], call["target_lengths"]
    steps, batch = log_probs.shape[:2]
    known = getattr(lengths, "_shadow_value", None) if isinstance(lengths, torch.Tensor) else torch.tensor(lengths)
    with no_dispatch():
        longest = targets.shape[-1] if known is None else int(known.max())
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 2 * longest + 1)


def _fp32_statistics(_: dict[str, Any], result: Any) -> Any:
    """Mean and deviation are fp32 whatever the input is.

    Source: torch 2.13, aten/src/ATen/native/cuda/layer_norm_kernel.cu and Normalization.cuh (accumulation types).
    """
    first, *statistics = result
    return (first, *(each.float() if each.is_floating_point() else each for each in statistics))


_BOTH: dict[Any, _Correction] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.mse_loss.default: _reduced_loss,
    aten.smooth_l1_loss.default: _reduced_loss,
    aten.soft_margin_loss.default: _reduced_loss,
    aten.binary_cross_entropy.default: _reduced_loss,
    aten.im2col.default: _folded,
    aten.col2im.default: _folded,
    aten.native_batch_norm_backward.default: _normalized_backward,
    aten.native_group_norm_backward.default: _grouped_backward,
}

_WITHOUT_RULE: dict[Any, Callable[[dict[str, Any]], Any]] = {aten._ctc_loss.Tensor: _ctc}
"""Operators whose rule refuses, since the result's shape depends on values."""

_CPU: dict[Any, _Correction] = {
    aten._embedding_bag.default: _bags,
    aten.native_batch_norm.default: _normalized,
    aten.native_layer_norm.default: _statistics_of_weight,
    aten.native_group_norm.default: _statistics_of_weight,
    aten.mkldnn_rnn_layer.default: _recurrent_layer,
    aten.mkldnn_rnn_layer_backward.default: _recurrent_layer_backward,
}

_CUDA: dict[Any, _Correction] = {
    aten.native_layer_norm.default: _fp32_statistics,
    aten.native_batch_norm.default: _fp32_statistics,
}
