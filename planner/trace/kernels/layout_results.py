"""Convolutions and norms: the order of the axes in memory, and the types of statistics."""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.kernels.memory_format import in_format, suggested


def convolution(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """Source: torch 2.13, aten/src/ATen/native/ConvUtils.h, mkldnn_conv_use_channels_last, cudnn_conv_suggest_..."""
    return in_format(result, suggested(call["input"], call["weight"]))


def convolution_backward(call: dict[str, Any], result: Any) -> Any:
    """The gradients of input and weight lie as the output does. Source: the same file."""
    gradient, weight, bias = result
    memory_format = suggested(call["input"], call["weight"])
    return (
        gradient if gradient is None else in_format(gradient, memory_format),
        weight if weight is None else in_format(weight, memory_format),
        bias,
    )


def normalized(call: dict[str, Any], result: Any) -> Any:
    """Source: torch 2.13, aten/src/ATen/native/Normalization.cpp, batch_norm_cpu."""
    first, *statistics = statistics_of_weight(call, result)
    return (in_format(first, suggested(call["input"])), *statistics)


def statistics_of_weight(call: dict[str, Any], result: Any) -> Any:
    """Mean and deviation are of the type of the weight, where that is wider than the input's.

    Source: torch 2.13, aten/src/ATen/native/cpu/mixed_data_type.h, param_scalar_type.
    """
    first, *statistics = result
    weight = call.get("weight")
    if weight is None or weight.dtype != torch.float32 or first.dtype == torch.float32:
        return result
    return (first, *(each.float() for each in statistics))


def normalized_backward(call: dict[str, Any], result: Any) -> Any:
    """Gives the gradients that are asked for. Source: torch 2.13, the same file, batch_norm_backward_cpu."""
    source, *rest = (each if wanted else None for each, wanted in zip(result, call["output_mask"], strict=True))
    return (source if source is None else in_format(source, suggested(call["input"])), *rest)


def grouped_backward(call: dict[str, Any], result: Any) -> Any:
    """The gradient of the input is of the input's type. Source: torch 2.13, the same folder, group_norm.cpp."""
    source, *rest = result
    return (source if source is None else source.to(call["input"].dtype), *rest)


def groups_on_cuda(call: dict[str, Any], result: Any) -> Any:
    """Source: torch 2.13, aten/src/ATen/native/group_norm.cpp, native_group_norm: contiguous but on a CPU."""
    first, *statistics = statistics_of_weight(call, result)
    return (in_format(first, torch.contiguous_format), *statistics)


def rms_statistics(_: dict[str, Any], result: Any) -> Any:
    """One number per row in fp32. Source: torch 2.13, aten/src/ATen/native/cuda/layer_norm_kernel.cu."""
    output, per_row = result
    return output, per_row.float()


def fp32_statistics(_: dict[str, Any], result: Any) -> Any:
    """Mean and deviation are fp32 whatever the input is.

    Source: torch 2.13, aten/src/ATen/native/cuda/layer_norm_kernel.cu and Normalization.cuh (accumulation types).
    """
    first, *statistics = result
    return (first, *(each.float() if each.is_floating_point() else each for each in statistics))


def contiguous_gradient(_: dict[str, Any], result: Any) -> Any:
    """The gradient of the input, whatever the layout of the output's.

    Source: torch 2.13, aten/src/ATen/native/layer_norm.cpp and cuda/layer_norm_kernel.cu, layer_norm_backward.
    """
    source, *rest = result
    return (source if source is None else in_format(source, torch.contiguous_format), *rest)


def as_input(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """Channels stay last. Source: torch 2.13, aten/src/ATen/native (TensorTransformations.cpp, ChannelShuffle.cpp)."""
    return in_format(result, suggested(call["self"]))


def always_contiguous(_: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """Whatever the operands are.

    Source: torch 2.13, aten/src/ATen/native/GatedLinearUnit.cpp, glu_backward_cpu; SoftMax.cpp,
    log_softmax_backward_data.
    """
    return in_format(result, torch.contiguous_format)


def joined(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """Channels are last where they are in all parts, else the result is contiguous.

    Source: torch 2.13, aten/src/ATen/native/TensorShape.cpp, cat_compute_output_memory_format.
    """
    formats = {suggested(part) for part in call["tensors"]}
    return in_format(result, formats.pop() if len(formats) == 1 else torch.contiguous_format)
