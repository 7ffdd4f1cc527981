"""Numbers as int8 or int4: blocks of elements with one scale each, in plain torch on any device.

Each block (`runtime.fsdp.quantized_layout`) has the scale max |x| / 127 (or / 7), and its elements are x / scale,
rounded to whole numbers: no element is wrong by more than half a scale. So zeros stay zeros, and in a block with an
element that is not finite, none is afterwards.

Source: ZeRO++ (arXiv 2306.10209) section 3.1, symmetric quantization by blocks; LoCo (arXiv 2407.04480) section 3: what
a gradient's quantization left out is kept in 8 bits and added before the next.
"""

from __future__ import annotations

import torch
from torch import Tensor

from runtime.fsdp.quantized_layout import Bits, Code, Part, residual_code

_LARGEST: dict[Bits, int] = {4: 7, 8: 127}
_LEAST_SCALE = torch.finfo(torch.float32).tiny
"""What lies below cannot be divided by: such a block is zeros."""


def elements_at_once(device: torch.device) -> int:
    """Returns how many elements are converted at a time, in fp32: few to hold on a CPU, many for a GPU's kernels."""
    return 2**18 if device.type == "cpu" else 2**22


@torch.no_grad()
def quantize(source: Tensor, message: Tensor, code: Code, residual: Tensor | None = None) -> None:
    """Writes rows of numbers as bytes.

    Args:
        source: (..., elements), of any floating-point type and strides.
        message: (..., bytes), uint8.
        code: how they lie there.
        residual: (..., bytes of the same runs in 8 bits): what the call before left out, which is added first, and is
            replaced by what this one does; zeros are none. None: it is forgotten. Of a block with an element that is
            not finite nothing is kept.
    """
    left_code = residual_code(code)
    num_rows, at_once = _num_rows(source), elements_at_once(source.device)
    for part, left in zip(code.parts(num_rows, at_once), left_code.parts(num_rows, at_once), strict=True):
        values = part.elements(source).to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        if residual is not None:
            values.addcmul_(_whole_numbers(residual, left, left_code.bits), left.scales_of(residual))
        scales = _scales(values, code.bits)
        part.scales_of(message).copy_(scales)
        divisor = scales.masked_fill(scales == 0, 1)
        if residual is None:
            _write(values.div_(divisor).round_(), message, part, code.bits)
            continue
        whole = (values / divisor).round_()
        values.addcmul_(whole, scales, value=-1)
        _write(whole, message, part, code.bits)
        scales = torch.nan_to_num_(_scales(values, left_code.bits), 0, 0, 0)
        left.scales_of(residual).copy_(scales)
        divisor = scales.masked_fill(scales == 0, 1)
        _write(values.div_(divisor).round_(), residual, left, left_code.bits)


@torch.no_grad()
def dequantize(message: Tensor, target: Tensor, code: Code) -> None:
    """Reads rows of numbers from bytes.

    Args:
        message: (..., bytes), uint8.
        target: (..., elements), of any floating-point type and strides.
        code: how they lie there.
    """
    for part in code.parts(_num_rows(target), elements_at_once(target.device)):
        values = part.elements(target)
        # Whole numbers of 8 bits are exact in all floating-point types: nothing is rounded before the scale.
        values.copy_(_whole_numbers(message, part, code.bits))
        values.mul_(part.scales_of(message))


@torch.no_grad()
def dequantize_sum(messages: Tensor, target: Tensor, code: Code) -> None:
    """Reads rows of numbers from bytes, and writes their sum over the messages, which is formed in fp32.

    Args:
        messages: (n, ..., bytes), uint8.
        target: (..., elements).
        code: how they lie there.
    """
    for part in code.parts(_num_rows(target) * len(messages), elements_at_once(target.device)):
        values = _whole_numbers(messages, part, code.bits).to(torch.float32)
        part.elements(target).copy_(values.mul_(part.scales_of(messages)).sum(0))


def _num_rows(rows: Tensor) -> int:
    return rows.numel() // max(1, rows.shape[-1])


def _scales(values: Tensor, bits: Bits) -> Tensor:
    """Returns the scale of each block of (..., block) as (..., 1)."""
    scales: Tensor = torch.linalg.vector_norm(values, torch.inf, dim=-1, keepdim=True)
    scales.div_(_LARGEST[bits])
    return scales.masked_fill_(scales < _LEAST_SCALE, 0)


def _write(whole: Tensor, message: Tensor, part: Part, bits: Bits) -> None:
    """Writes whole numbers, (..., num_blocks, block), which it may change."""
    payload = part.payload_of(message, bits)
    if bits == 8:
        payload.view(torch.int8).copy_(whole)
        return
    # Two in a byte, above 0: the block's first half in the lower bits.
    half = payload.shape[-1]
    high = whole[..., half:].mul_(16)
    lower = whole[..., :half].add_(8 * 16 + 8)
    lower[..., : high.shape[-1]].add_(high)
    payload.copy_(lower)


def _whole_numbers(message: Tensor, part: Part, bits: Bits) -> Tensor:
    """Returns the elements as (..., num_blocks, block) without their scale, in 8 bits."""
    payload = part.payload_of(message, bits)
    if bits == 8:
        return payload.view(torch.int8)
    whole = payload.new_empty(*payload.shape[:-1], part.block, dtype=torch.int8)
    half = payload.shape[-1]
    torch.bitwise_and(payload, 15, out=whole[..., :half])
    whole[..., half:] = (payload >> 4)[..., : part.block - half]
    return whole.sub_(8)
