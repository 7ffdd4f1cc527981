"""Results as kernels really give them, where torch's shape rules for fake tensors say something else.

Memory follows storages and strides: a result in another order of axes makes a later operator copy or not, and some
kernels keep more memory behind a result than its elements need. Found by running each kind of module on real and on
fake tensors side by side (tests/unit/test_trace_kernels.py); the corrections are in `planner/trace/kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from planner.trace.kernels import layout_results, loss_results, recurrence_results
from planner.trace.kernels.packed_sequences import pack

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


_BOTH: dict[Any, _Correction] = {
    aten.convolution.default: layout_results.convolution,
    aten.convolution_backward.default: layout_results.convolution_backward,
    aten.cat.default: layout_results.joined,
    aten.mse_loss.default: loss_results.reduced_loss,
    aten.smooth_l1_loss.default: loss_results.reduced_loss,
    aten.soft_margin_loss.default: loss_results.reduced_loss,
    aten.binary_cross_entropy.default: loss_results.reduced_loss,
    aten.im2col.default: loss_results.folded,
    aten.col2im.default: loss_results.folded,
    aten.native_batch_norm_backward.default: layout_results.normalized_backward,
    aten.native_layer_norm_backward.default: layout_results.contiguous_gradient,
    aten._log_softmax_backward_data.default: layout_results.always_contiguous,
    aten._fused_rms_norm_backward.default: layout_results.contiguous_gradient,
    aten.native_group_norm_backward.default: layout_results.grouped_backward,
}

_WITHOUT_RULE: dict[Any, Callable[[dict[str, Any]], Any]] = {
    aten._ctc_loss.Tensor: loss_results.ctc,
    aten._pack_padded_sequence.default: pack,
    aten._cudnn_rnn_backward.default: recurrence_results.cudnn_layers_backward,
    aten._thnn_fused_gru_cell.default: recurrence_results.gru_cell,
    aten._thnn_fused_gru_cell_backward.default: recurrence_results.gru_cell_backward,
}
"""Operators without a rule, or whose rule refuses since the result's shape depends on values."""

_CPU: dict[Any, _Correction] = {
    aten._embedding_bag.default: loss_results.bag_places,
    aten.native_batch_norm.default: layout_results.normalized,
    aten.native_layer_norm.default: layout_results.statistics_of_weight,
    aten.native_group_norm.default: layout_results.statistics_of_weight,
    aten.roll.default: layout_results.as_input,
    aten.channel_shuffle.default: layout_results.as_input,
    aten.reflection_pad2d_backward.default: layout_results.as_input,
    aten.replication_pad2d_backward.default: layout_results.as_input,
    aten.glu_backward.default: layout_results.always_contiguous,
    aten.mkldnn_rnn_layer.default: recurrence_results.onednn_layer,
    aten.mkldnn_rnn_layer_backward.default: recurrence_results.onednn_layer_backward,
}

_CUDA: dict[Any, _Correction] = {
    aten.native_layer_norm.default: layout_results.fp32_statistics,
    aten.native_batch_norm.default: layout_results.fp32_statistics,
    aten.native_group_norm.default: layout_results.groups_on_cuda,
    aten._fused_rms_norm.default: layout_results.rms_statistics,
    aten._embedding_bag.default: loss_results.bag_places_on_cuda,
    aten._cudnn_rnn.default: recurrence_results.cudnn_layers,
}
