"""Which kernel CUDA's `scaled_dot_product_attention` takes, from its operands.

Source: torch 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, select_sdp_backend and the checks it calls,
and aten/src/ATen/native/transformers/sdp_utils_cpp.h. What the user turns off by `torch.nn.attention.sdpa_kernel` or
`torch.backends.cuda` is off here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

AttentionKernel = Literal["flash", "efficient", "cudnn", "math"]

MAX_FLASH_HEAD_SIZE = 256
MAX_CUDNN_HEAD_SIZE = 128
MIN_PREFERRED_CUDNN = 91501
"""Version, as 90000 + 100 x minor + patch, from which on cuDNN comes first on GPUs of capability 9.0 and 10.x."""

_HALF = (torch.float16, torch.bfloat16)
_KERNELS: tuple[AttentionKernel, ...] = ("math", "flash", "efficient", "cudnn")
"""By their numbers in torch's enumeration `SDPBackend`."""


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """The GPU that the step is for, as far as kernels depend on it."""

    compute_capability: tuple[int, int] = (8, 0)
    cudnn_version: int = 0
    """As in `MIN_PREFERRED_CUDNN`; 0 where cuDNN is not to come before the other kernels."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call; tensors are (batch, heads, length, head size) where a fused kernel can take them."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    dropout: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False

    @property
    def requires_grad(self) -> bool:
        """Whether backward will run through it."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (self.query, self.key, self.value))

    @property
    def head_sizes(self) -> tuple[int, int, int]:
        """Of query, key and value."""
        return self.query.shape[-1], self.key.shape[-1], self.value.shape[-1]


class NoAttentionKernelError(RuntimeError):
    """All kernels that could take the call are turned off; torch raises on CUDA."""


def attention_kernel(call: AttentionCall, target: CudaTarget = CudaTarget()) -> AttentionKernel:
    """Returns the first kernel in the order of priority that is turned on and can take the call.

    Raises:
        NoAttentionKernelError: There is none.
    """
    for kernel in _priority(target):
        if _is_on(kernel) and _CAN_TAKE[kernel](call, target):
            return kernel
    raise NoAttentionKernelError(
        f"scaled_dot_product_attention of {tuple(call.query.shape)} in {call.query.dtype} has no kernel on CUDA: those "
        "that could take it are turned off (torch.nn.attention.sdpa_kernel)"
    )


def _priority(target: CudaTarget) -> list[AttentionKernel]:
    """The user's order, else torch's: flash, efficient, math, and cuDNN last unless the GPU is one that prefers it."""
    numbers = [number for number in torch._C._get_sdp_priority_order() if number < len(_KERNELS)]
    order = [_KERNELS[number] for number in numbers]
    prefers_cudnn = target.cudnn_version >= MIN_PREFERRED_CUDNN and target.compute_capability in (
        (9, 0),
        (10, 0),
        (10, 3),
    )
    if prefers_cudnn and order == ["flash", "efficient", "math", "cudnn"]:
        return ["cudnn", "flash", "efficient", "math"]
    return order


def _is_on(kernel: AttentionKernel) -> bool:
    backends = torch.backends.cuda
    is_enabled: dict[AttentionKernel, Callable[[], bool]] = {
        "flash": backends.flash_sdp_enabled,
        "efficient": backends.mem_efficient_sdp_enabled,
        "cudnn": backends.cudnn_sdp_enabled,
        "math": backends.math_sdp_enabled,
    }
    return is_enabled[kernel]()


def _is_fusable(call: AttentionCall) -> bool:
    """What all fused kernels ask: 4 axes, one type, one batch size, no empty sequence."""
    tensors = (call.query, call.key, call.value)
    return (
        all(tensor.dim() == 4 for tensor in tensors)
        and len({tensor.dtype for tensor in tensors}) == 1
        and len({tensor.shape[0] for tensor in tensors}) == 1
        and all(tensor.shape[-2] > 0 for tensor in tensors)
    )


def _heads_match(call: AttentionCall, is_grouped: bool, values_as_keys: bool = True) -> bool:
    query, key, value = (tensor.shape[-3] for tensor in (call.query, call.key, call.value))
    if not (call.enable_gqa and is_grouped):
        return query == key == value
    return (key == value or not values_as_keys) and query % key == 0 and (values_as_keys or query % value == 0)


def _rows_are_contiguous(call: AttentionCall, single_is_fine: bool) -> bool:
    rows = all(tensor.stride(-1) == 1 for tensor in (call.query, call.key, call.value))
    rows = rows or (single_is_fine and call.query.shape[-1] == 1)
    return rows and (call.mask is None or call.mask.stride(-1) == 1)


def _can_flash(call: AttentionCall, target: CudaTarget) -> bool:
    if call.mask is not None or not _is_fusable(call) or call.query.dtype not in _HALF:
        return False
    query, key, value = call.head_sizes
    return (
        query == key == value <= MAX_FLASH_HEAD_SIZE
        and (8, 0) <= target.compute_capability <= (12, 1)
        and _can_flash_back(call, target)
        and not (call.is_causal and call.query.shape[-2] != call.key.shape[-2])
        and _heads_match(call, is_grouped=True)
        and _rows_are_contiguous(call, single_is_fine=True)
    )


def _can_flash_back(call: AttentionCall, target: CudaTarget) -> bool:
    """On GPUs with little shared memory, backward of the largest heads does not fit.

    Source: the same file, check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120.
    """
    capability, size = target.compute_capability, call.query.shape[-1]
    is_small = (8, 6) <= capability <= (8, 9) or (12, 0) <= capability <= (12, 1)
    if not (is_small and call.requires_grad):
        return True
    return size <= 192 or (size > 224 and call.dropout == 0)


def _can_efficient(call: AttentionCall, target: CudaTarget) -> bool:
    is_half = call.query.dtype in _HALF
    if not _is_fusable(call) or not (is_half or call.query.dtype == torch.float32):
        return False
    if call.query.dtype == torch.bfloat16 and target.compute_capability < (8, 0):
        return False
    query, key, value = call.head_sizes
    alignment = _alignment(is_half, target)
    return (
        (5, 0) <= target.compute_capability <= (12, 1)
        and query == key > 0
        and value > 0
        and query % alignment == value % alignment == 0
        and _heads_match(call, is_grouped=False)
        and _rows_are_contiguous(call, single_is_fine=False)
    )


def _alignment(is_half: bool, target: CudaTarget) -> int:
    """Elements that a row of a head is a multiple of: 16 bytes on tensor cores. Source: minimum_gemm_alignment."""
    capability = target.compute_capability
    has_tensor_cores = capability >= (8, 0) or (capability >= (7, 0) and is_half)
    least = 4 if capability >= (8, 0) else 1
    return max(least, 8 if is_half else 4) if has_tensor_cores else least


def _can_cudnn(call: AttentionCall, target: CudaTarget) -> bool:
    if not target.cudnn_version or not _is_fusable(call) or call.query.dtype not in _HALF:
        return False
    query, _, value = call.head_sizes
    is_wide = target.compute_capability in ((9, 0), (10, 0), (10, 3)) and (query, value) == (192, 128)
    limit = 192 if is_wide else MAX_CUDNN_HEAD_SIZE
    return (
        (8, 0) <= target.compute_capability <= (12, 1)
        and (call.dropout * 16).is_integer()
        and max(query, value) <= limit
        and query % 8 == value % 8 == 0
        and call.key.shape[-2] != 1
        and not (call.dropout and call.query.shape[-2] == 1)
        and _mask_fits_cudnn(call)
        and _heads_match(call, is_grouped=True, values_as_keys=False)
        and _rows_are_contiguous(call, single_is_fine=True)
        and not torch.are_deterministic_algorithms_enabled()
    )


def _mask_fits_cudnn(call: AttentionCall) -> bool:
    """Two or four axes, each whole or 1, and not trained. Source: check_attn_mask_shape."""
    if call.mask is None:
        return True
    whole = (*call.query.shape[:3], call.key.shape[-2])
    axes = zip(reversed(call.mask.shape), reversed(whole), strict=False)
    return not call.mask.requires_grad and call.mask.dim() in (2, 4) and all(size in (1, of) for size, of in axes)


_CAN_TAKE: dict[AttentionKernel, Callable[[AttentionCall, CudaTarget], bool]] = {
    "flash": _can_flash,
    "efficient": _can_efficient,
    "cudnn": _can_cudnn,
    "math": lambda call, target: True,  # noqa: ARG005 - takes everything
}
