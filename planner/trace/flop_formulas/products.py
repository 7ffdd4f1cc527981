"""Matrix products: 2 m k n operations for (m, k) x (k, n).

Biases and scales are not counted, as in torch. Source: torch 2.13, torch/utils/flop_counter.py, mm_flop.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from planner.trace.flop_formulas.call import Call, Formula


def _product(left: str, right: str) -> Formula:
    """(..., m, k) x (..., k, n): every element of the left meets n elements of the right; those stored, if sparse."""

    def formula(call: Call) -> int:
        return int(2 * _num_stored(call[left]) * call[right].shape[-1])

    return formula


def _num_stored(matrix: Any) -> int:
    return int(matrix.numel() if matrix.layout == torch.strided else matrix._nnz())


def _from_result(left: str) -> Formula:
    """The right operand is packed, or stored as (n, k): n is read from the result."""

    def formula(call: Call) -> int:
        return int(2 * call[left].numel() * call["result"].shape[-1])

    return formula


def _matrix_vector(matrix: str) -> Formula:
    return lambda call: 2 * _num_stored(call[matrix])


def _outer(call: Call) -> int:
    """One multiplication for each element of the result; the sum with `self` is not counted."""
    result = call["result"]
    return int(result.numel())


def _matmul(call: Call) -> int:
    left, right = call["self"], call["other"]
    return int(2 * left.numel() * right.shape[-1]) if right.dim() > 1 else int(2 * left.numel())


def _batches_broadcast(call: Call) -> int:
    """A product of any number of axes: k is the last of the left, all others are in the result."""
    left, right, result = call["self"], call["other"], call["result"]
    if left.dim() == 1 or right.dim() == 1:
        return _matmul(call)
    return int(2 * result.numel() * left.shape[-1])


def _backward_of(asked: str, num_elements: Formula) -> Formula:
    """As many operations as forward for each of the two gradients (of the operands) that are asked for."""
    return lambda call: num_elements(call) * sum(bool(wanted) for wanted in call[asked][:2])


def _linear_forward(call: Call) -> int:
    return int(2 * call["self"].numel() * call["weight"].shape[0])


def _matmul_forward(call: Call) -> int:
    return int(2 * call["grad"].numel() * call["self"].shape[-1])


def _mkldnn_gradient(call: Call) -> int:
    return int(2 * call["grad_output"].numel() * call["weight"].shape[-1])


def _grouped(call: Call) -> int:
    """2 m k n over all groups; a 2-D operand is split among the groups, a 3-D one has one matrix for each.

    Source: torch 2.13, aten/src/ATen/native/cuda/GroupedBlas.cpp, _grouped_mm_cuda: the four pairs of 2-D and 3-D.
    """
    left, right = call["self"], call["mat2"]
    if left.dim() == 3 and right.dim() == 3:
        return int(2 * left.numel() * right.shape[-1])
    if left.dim() == 3:
        return int(2 * left.shape[1] * right.numel())  # Every column is in one group: m x k x n in all.
    # Both 2-D: the shared axis is split, and each group gives a matrix of its own.
    return int(2 * left.numel() * right.shape[-1])


def _many(call: Call) -> int:
    return sum(int(2 * left.numel() * right.shape[-1]) for left, right in zip(call["self"], call["mat2"], strict=True))


def _trilinear(call: Call) -> int:
    """Two products of pairs: the first two operands over the axes that the third lacks, then with the third.

    The three operands are broadcast to common axes by `expand1..3`; `sumdim` are summed over.
    Source: torch 2.13, aten/src/ATen/native/Linear.cpp, _trilinear.
    """
    shapes = []
    for operand, expanded in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        sizes = list(call[operand].shape)
        for axis in sorted(call[expanded]):
            sizes.insert(axis, 1)
        shapes.append(sizes)
    first, second, third = shapes
    pair = [max(a, b) for a, b in zip(first, second, strict=True)]
    left = [1 if axis in call["sumdim"] and axis in call["expand3"] else size for axis, size in enumerate(pair)]
    joint = [max(a, b) for a, b in zip(left, third, strict=True)]
    return 2 * int(math.prod(pair)) + 2 * int(math.prod(joint))


def _sparse(dense: str, sparse: str) -> Formula:
    """Each stored element of the sparse operand meets a row of the dense one."""
    return lambda call: int(2 * call[sparse]._nnz() * call[dense].shape[-1])


def _sampled(call: Call) -> int:
    return int(2 * call["self"]._nnz() * call["mat1"].shape[-1])


def _semi_structured(call: Call) -> int:
    """Half the weights are stored; the kernel multiplies those (2:4 sparsity). (m, k/2) x (k, n)."""
    return int(2 * call["mat1"].numel() * call["mat2"].shape[-1])


PRODUCTS: dict[str, Formula] = {
    "aten::mm": _product("self", "mat2"),
    "aten::bmm": _product("self", "mat2"),
    "aten::addmm": _product("mat1", "mat2"),
    "aten::_addmm_activation": _product("mat1", "mat2"),
    "aten::baddbmm": _product("batch1", "batch2"),
    "aten::addbmm": _product("batch1", "batch2"),
    "aten::mv": _matrix_vector("self"),
    "aten::addmv": _matrix_vector("mat"),
    "aten::dot": _matrix_vector("self"),
    "aten::vdot": _matrix_vector("self"),
    "aten::addr": _outer,
    "aten::ger": _outer,
    "aten::outer": _outer,
    "aten::kron": _outer,
    "aten::matmul": _batches_broadcast,
    "aten::linalg_matmul": _batches_broadcast,
    "aten::linear": lambda call: int(2 * call["input"].numel() * call["weight"].shape[0]),
    "aten::linear_backward": _backward_of("output_mask", _linear_forward),
    "aten::matmul_backward": _backward_of("mask", _matmul_forward),
    "aten::mkldnn_linear": _from_result("self"),
    "aten::mkldnn_linear_backward_input": _mkldnn_gradient,
    "aten::mkldnn_linear_backward_weights": _mkldnn_gradient,
    "aten::mkldnn_linear_backward": _backward_of("output_mask", _linear_forward),
    "aten::_trilinear": _trilinear,
    "aten::_foreach_mm": _many,
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm_v2": _grouped,
    "aten::_scaled_mm": _product("self", "mat2"),
    "aten::_scaled_mm_v2": _product("self", "mat2"),
    "aten::_int_mm": _product("self", "mat2"),
    "aten::_weight_int4pack_mm": _from_result("self"),
    "aten::_weight_int4pack_mm_for_cpu": _from_result("self"),
    "aten::_weight_int4pack_mm_with_scales_and_zeros": _from_result("self"),
    "aten::_weight_int8pack_mm": _from_result("self"),
    "aten::_dyn_quant_matmul_4bit": _from_result("inp"),
    "aten::_mixed_dtypes_linear": _from_result("input"),
    "aten::_wrapped_quantized_linear_prepacked": _from_result("input"),
    "aten::fbgemm_linear_fp16_weight": _from_result("input"),
    "aten::fbgemm_linear_fp16_weight_fp32_activation": _from_result("input"),
    "aten::fbgemm_linear_int8_weight": _from_result("input"),
    "aten::fbgemm_linear_int8_weight_fp32_activation": _from_result("input"),
    "aten::_cslt_sparse_mm": _product("compressed_A", "dense_B"),
    "aten::_sparse_semi_structured_linear": lambda call: int(2 * call["result"].shape[0] * call["weight"].numel()),
    "aten::_sparse_semi_structured_mm": _semi_structured,
    "aten::_sparse_semi_structured_addmm": _semi_structured,
    "aten::_sparse_mm": _sparse("dense", "sparse"),
    "aten::_sparse_mm_reduce_impl": _sparse("other", "self"),
    "aten::_sparse_addmm": _sparse("mat2", "mat1"),
    "aten::sspaddmm": _sparse("mat2", "mat1"),
    "aten::hspmm": _sparse("mat2", "mat1"),
    "aten::smm": _sparse("mat2", "self"),
    "aten::sparse_sampled_addmm": _sampled,
    "quantized::linear": _from_result("X"),
    "quantized::linear_relu": _from_result("X"),
    "quantized::linear_dynamic": _from_result("X"),
    "quantized::linear_relu_dynamic": _from_result("X"),
    "quantized::linear_dynamic_fp16": _from_result("X"),
    "bitsandbytes::int8_linear_matmul": lambda call: int(2 * call["A"].numel() * call["B"].shape[0]),
    "bitsandbytes::gemv_4bit": _from_result("A"),
}
