"""Floating-point operations of one operator, from the shapes of its operands.

An own table answers first: torch's is silent for many operators and wrong for some (grouped convolutions backward,
attention with the length first). Bags of embeddings count as nothing: they only add. Then torch's registry, where a
user registers the formula of a kernel of their own (`torch.utils.flop_counter.register_flop_formula`). An operator
without a formula counts as nothing when its name does not suggest a product, convolution, attention or recurrence, and
as unknown when it does.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from planner.trace.flop_formulas import FORMULAS, Formula, Kind

_SUSPECT = re.compile(
    r"(?<!ga|ha|cu)mm|conv(?!ert)|attention|attn|sdp|rnn|lstm|gru|linear|matmul|gemm|einsum|dot|outer|^ger$|addr|mv$"
    r"|cdist|pdist|fft|linalg|cholesky|qr(?!t)|svd|(?<!re)solve|inverse|(?<!w)eig|kron|cell|multi_head|transformer|scan"
    r"|matrix_exp|lstsq|selective|trilinear|int4|int8"
)
"""Names that suggest products, convolutions, attention, recurrences or what is as expensive."""

NO_WORK = frozenset(
    {
        # Gates of recurrent cells: elementwise.
        "aten::_thnn_fused_lstm_cell",
        "aten::_thnn_fused_lstm_cell_backward_impl",
        "aten::_thnn_fused_gru_cell",
        "aten::_thnn_fused_gru_cell_backward",
        # Interpolation: a few operations per element.
        *(f"aten::upsample_{kind}{end}" for kind in ("linear1d", "bilinear2d") for end in ("", "_backward")),
        *(f"aten::upsample_trilinear3d{end}" for end in ("", "_backward")),
        *(f"aten::_upsample_bilinear2d_aa{end}" for end in ("", "_backward")),
        # Norms, checks, packing, layouts and questions.
        "aten::linalg_vector_norm",
        "aten::linalg__powsum",
        "aten::linalg_cross",
        "aten::linalg_diagonal",
        "aten::_linalg_check_errors",
        "aten::slice_inverse",
        "aten::fft_fftfreq",
        "aten::fft_rfftfreq",
        "aten::fft_fftshift",
        "aten::fft_ifftshift",
        "aten::_cudnn_rnn_flatten_weight",
        "aten::_fused_sdp_choice",
        "aten::_cslt_sparse_mm_search",
        "aten::_nested_get_jagged_dummy",
        "aten::_compute_linear_combination",
        "aten::mkldnn_reorder_conv2d_weight",
        "aten::mkldnn_reorder_conv3d_weight",
        "aten::_convert_weight_to_int4pack",
        "aten::_convert_weight_to_int4pack_for_cpu",
        "aten::fbgemm_pack_gemm_matrix_fp16",
        "aten::fbgemm_linear_quantize_weight",
        "aten::_wrapped_linear_prepack",
        "aten::_cufft_clear_plan_cache",
        "aten::_cufft_get_plan_cache_max_size",
        "aten::_cufft_get_plan_cache_size",
        "aten::_cufft_set_plan_cache_max_size",
    }
)
"""Operators whose names are suspect, reviewed: they do no such work."""


def operator_work(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[Kind, int] | None:
    """Returns the kind of work of one call of `func` and its operations; None when a formula is missing.

    An elementwise operator is ("other", 0). Args and result are those of the call, real or fake.
    """
    packet = getattr(func, "_overloadpacket", func)
    name, known, is_unknown = _looked_up(packet)
    if known is not None:
        kind, formula = known
        return kind, formula(_named(func, args, kwargs, result))
    registered = flop_registry.get(packet)
    if registered is not None:
        return _kind(name), int(registered(*args, **kwargs, out_val=result))
    return None if is_unknown else ("other", 0)


@functools.cache
def _looked_up(packet: Any) -> tuple[str, tuple[Kind, Formula] | None, bool]:
    """The operator's name, its formula if there is one, and whether it may do work that counts."""
    name = str(getattr(packet, "_qualified_op_name", None) or packet.__name__)
    return name, FORMULAS.get(name) or FORMULAS.get(name.rstrip("_")), is_suspect(name)


def operator_flop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int | None:
    """Returns the operations of one call of `func`, 0 for an elementwise one, None when a formula is missing."""
    work = operator_work(func, args, kwargs, result)
    return None if work is None else work[1]


def is_suspect(name: str) -> bool:
    """Whether an operator of this qualified name may do work that counts, and has not been reviewed."""
    namespace, _, own = name.rpartition("::")
    return namespace != "prim" and _SUSPECT.search(own) is not None and name.rstrip("_") not in NO_WORK


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes that reading the whole tensor touches; an expanded axis is read once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0]
    return math.prod(sizes) * tensor.element_size()


_HIGHER_ORDER = {
    "flex_attention": ("query", "key", "value"),
    "flex_attention_backward": ("query", "key", "value"),
}
"""The leading operands of operators that have no schema.

Source: torch 2.13, torch/_higher_order_ops/flex_attention.py."""


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    schema = getattr(func, "_schema", None)
    if schema is None:
        names = _HIGHER_ORDER[func.__name__]
        return {**dict(zip(names, args, strict=False)), **kwargs, "result": result}
    return {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | {
        **kwargs,
        "result": result,
    }


_KINDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("scan", ("scan", "ssm", "ssd", "delta_rule", "wkv", "recurrent")),
    ("attention", ("attention", "attn", "sdp", "flash")),
    ("convolution", ("conv",)),
    ("recurrence", ("rnn", "lstm", "gru")),
    ("fft", ("fft",)),
    ("matmul", ("mm", "matmul", "linear", "dot", "mv", "einsum", "product")),
)


def _kind(name: str) -> Kind:
    """The kind of an operator that somebody else registered, by its name."""
    return next((kind for kind, parts in _KINDS if any(part in name for part in parts)), "other")
