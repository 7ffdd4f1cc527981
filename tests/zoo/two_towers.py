"""Two towers: networks that compare texts with images or sounds, of transformers."""

from __future__ import annotations

import torch

from tests.zoo.encoders import ENCODER
from tests.zoo.entry import Batch, pixels, tokens, transformer
from tests.zoo.images import VIT

TEXT_TOWER = {**ENCODER, "bos_token_id": 1, "eos_token_id": 2, "projection_dim": 32}
VISION_TOWER = {**VIT, "projection_dim": 32}
TOWERS = {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER, "projection_dim": 32}


def _pairs(micro_batch_size: int) -> Batch:
    return {"input_ids": tokens(micro_batch_size), **pixels(micro_batch_size), "return_loss": True}


clip = transformer("CLIPModel", TOWERS, _pairs, family="two towers")
siglip = transformer("SiglipModel", TOWERS, _pairs, family="two towers")
chinese_clip = transformer("ChineseCLIPModel", TOWERS, _pairs, family="two towers")
altclip = transformer(
    "AltCLIPModel",
    {**TOWERS, "text_config": {**TEXT_TOWER, "project_dim": 32, "pad_token_id": 1}},
    _pairs,
    family="two towers",
)
clap = transformer(
    "ClapModel",
    {
        "text_config": {**ENCODER, "pad_token_id": 1},
        "audio_config": {
            "patch_embeds_hidden_size": 16,
            "depths": [1, 1],
            "num_attention_heads": [2, 4],
            "window_size": 4,
            "spec_size": 64,
            "num_mel_bins": 16,
            "hidden_size": 32,
        },
        "projection_dim": 32,
    },
    lambda size: {
        "input_ids": tokens(size),
        "input_features": torch.randn(size, 1, 100, 16),
        "is_longer": torch.zeros(size, 1, dtype=torch.bool),
        "return_loss": True,
    },
    family="two towers",
)
owlvit = transformer(
    "OwlViTModel",
    {**TOWERS, "text_config": {**TEXT_TOWER, "max_position_embeddings": 32}},
    _pairs,
    family="two towers",
)
flava = transformer(
    "FlavaModel",
    {
        "image_config": VIT,
        "text_config": ENCODER,
        "multimodal_config": {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        },
        "hidden_size": 64,
        "projection_dim": 32,
    },
    lambda size: {"input_ids": tokens(size), **pixels(size)},
    family="two towers",
    has_loss=False,
)
