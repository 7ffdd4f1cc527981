"""Denoisers and autoencoders, of diffusers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.zoo.entry import Batch, Entry, network


def _diffuser(class_name: str, fields: dict[str, Any], batch: Any, notes: str = "") -> Entry:
    def build() -> nn.Module:
        import diffusers

        module: nn.Module = getattr(diffusers, class_name)(**fields)
        return module

    return network(build, batch, family="diffusion", notes=notes, has_loss=False)


def _conditioned(micro_batch_size: int, width: int = 32) -> Batch:
    return {
        "sample": torch.randn(micro_batch_size, 4, 16, 16),
        "timestep": torch.ones(micro_batch_size, dtype=torch.long),
        "encoder_hidden_states": torch.randn(micro_batch_size, 8, width),
    }


def _image(micro_batch_size: int) -> Batch:
    return {"sample": torch.randn(micro_batch_size, 3, 32, 32)}


unet = _diffuser(
    "UNet2DConditionModel",
    {
        "sample_size": 16,
        "layers_per_block": 2,
        "block_out_channels": (32, 64),
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": 32,
        "attention_head_dim": 8,
    },
    _conditioned,
)
unet_unconditional = _diffuser(
    "UNet2DModel",
    {
        "sample_size": 32,
        "block_out_channels": (32, 64),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 8,
    },
    lambda size: {**_image(size), "timestep": torch.ones(size, dtype=torch.long)},
)
dit = _diffuser(
    "DiTTransformer2DModel",
    {
        "num_attention_heads": 4,
        "attention_head_dim": 16,
        "in_channels": 4,
        "out_channels": 8,
        "num_layers": 3,
        "sample_size": 16,
        "patch_size": 2,
        "num_embeds_ada_norm": 10,
    },
    lambda size: {
        "hidden_states": torch.randn(size, 4, 16, 16),
        "timestep": torch.ones(size, dtype=torch.long),
        "class_labels": torch.ones(size, dtype=torch.long),
    },
    "drops labels at random",
)
flux = _diffuser(
    "FluxTransformer2DModel",
    {
        "patch_size": 1,
        "in_channels": 16,
        "num_layers": 2,
        "num_single_layers": 3,
        "attention_head_dim": 16,
        "num_attention_heads": 4,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 32,
        "axes_dims_rope": (4, 4, 8),
    },
    lambda size: {
        "hidden_states": torch.randn(size, 16, 16),
        "encoder_hidden_states": torch.randn(size, 8, 32),
        "pooled_projections": torch.randn(size, 32),
        "timestep": torch.ones(size),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(8, 3),
    },
    "two kinds of blocks",
)
sd3 = _diffuser(
    "SD3Transformer2DModel",
    {
        "sample_size": 16,
        "patch_size": 2,
        "in_channels": 4,
        "num_layers": 3,
        "attention_head_dim": 16,
        "num_attention_heads": 4,
        "joint_attention_dim": 32,
        "caption_projection_dim": 64,
        "pooled_projection_dim": 32,
        "pos_embed_max_size": 16,
        "out_channels": 4,
    },
    lambda size: {
        "hidden_states": torch.randn(size, 4, 16, 16),
        "encoder_hidden_states": torch.randn(size, 8, 32),
        "pooled_projections": torch.randn(size, 32),
        "timestep": torch.ones(size, dtype=torch.long),
    },
)
vae = _diffuser(
    "AutoencoderKL",
    {
        "block_out_channels": (32, 64),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "norm_num_groups": 8,
        "sample_size": 32,
    },
    _image,
)
vq = _diffuser(
    "VQModel", {"block_out_channels": (32,), "norm_num_groups": 8, "num_vq_embeddings": 32}, _image, "nearest codes"
)
pixart = _diffuser(
    "PixArtTransformer2DModel",
    {
        "num_attention_heads": 4,
        "attention_head_dim": 16,
        "in_channels": 4,
        "num_layers": 3,
        "sample_size": 16,
        "cross_attention_dim": 64,
        "caption_channels": 32,
        "use_additional_conditions": False,
    },
    lambda size: {
        "hidden_states": torch.randn(size, 4, 16, 16),
        "encoder_hidden_states": torch.randn(size, 8, 32),
        "timestep": torch.ones(size, dtype=torch.long),
    },
)
