"""What `torch.autocast` does with each operator on CUDA: the policies and their lists.

Source: torch 2.13, aten/src/ATen/autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE and AT_FORALL_PROMOTE, with the operators of
cuDNN of aten/src/ATen/autocast_mode.cpp. A name has its overload after a point, none for the default one.
"""

from __future__ import annotations

from typing import Literal

Policy = Literal["lower", "fp32", "fp32_result", "fp32_norm", "promote", "refuse"]
"""lower: floats become bf16 or fp16, and casts of parameters are kept. fp32: floats become fp32. fp32_result: the
result becomes fp32 by its argument `dtype`, unless the caller gave one. fp32_norm: the same by the overload that has
such an argument. promote: floats become the widest of them. refuse: raises."""

LOWER = (
    *("_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d"),
    *("conv_transpose2d.input", "conv_transpose3d.input", "convolution", "cudnn_convolution"),
    *("cudnn_convolution_transpose", "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv"),
    *("linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot"),
    *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
    *("_scaled_dot_product_flash_attention", "scaled_dot_product_attention"),
)

FP32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt"),
    *("sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm"),
    *("native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim"),
    *("cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d"),
    *("hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"),
    *("margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss"),
    *("multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp"),
    *("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d"),
    *("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d"),
    *("_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"),
)

FP32_RESULT = (
    *("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm"),
    *("linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList"),
)

FP32_NORM = ("norm.Scalar", "norm.ScalarOpt_dim")

PROMOTE = (
    *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot"),
    "scatter_add",
)

REFUSE = ("binary_cross_entropy",)

CUDA_POLICIES: dict[str, Policy] = {
    **dict.fromkeys(LOWER, "lower"),
    **dict.fromkeys(FP32, "fp32"),
    **dict.fromkeys(FP32_RESULT, "fp32_result"),
    **dict.fromkeys(FP32_NORM, "fp32_norm"),
    **dict.fromkeys(PROMOTE, "promote"),
    **dict.fromkeys(REFUSE, "refuse"),
}
