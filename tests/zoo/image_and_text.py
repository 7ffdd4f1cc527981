"""Language models that read images, of transformers."""

from __future__ import annotations

import torch

from tests.zoo.decoders import GROUPED
from tests.zoo.encoders import ENCODER
from tests.zoo.entry import IMAGE_SIZE, Batch, pixels, tokens, transformer
from tests.zoo.images import VIT

IMAGE_TOKEN = 511
NUM_PATCHES = (IMAGE_SIZE // 16) ** 2


def _illustrated(micro_batch_size: int, num_places: int = NUM_PATCHES) -> Batch:
    """Texts with an image each: its places in the text hold the image token."""
    ids = tokens(micro_batch_size, 32 + num_places, end=500)
    ids[:, 1 : 1 + num_places] = IMAGE_TOKEN
    return {"input_ids": ids, **pixels(micro_batch_size), "labels": ids.clone(), "use_cache": False}


vilt = transformer(
    "ViltForMaskedLM",
    {**ENCODER, **VIT, "max_image_length": 16},
    lambda size: {
        "input_ids": tokens(size),
        **pixels(size),
        "pixel_mask": torch.ones(size, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.long),
        "labels": tokens(size),
    },
    family="image and text",
)
blip = transformer(
    "BlipForConditionalGeneration",
    {"text_config": {**ENCODER, "encoder_hidden_size": 64}, "vision_config": VIT, "projection_dim": 32},
    lambda size: {"input_ids": tokens(size), **pixels(size), "labels": tokens(size)},
    family="image and text",
)
git = transformer(
    "GitForCausalLM",
    {**ENCODER, "vision_config": {**VIT, "model_type": "git_vision_model"}},
    lambda size: {"input_ids": tokens(size), **pixels(size), "labels": tokens(size), "use_cache": False},
    family="image and text",
)
llava = transformer(
    "LlavaForConditionalGeneration",
    {
        "vision_config": {**VIT, "model_type": "clip_vision_model"},
        "text_config": {**GROUPED, "model_type": "llama"},
        "image_token_id": IMAGE_TOKEN,
        "vision_feature_layer": -1,
    },
    _illustrated,
    family="image and text",
    notes="places of the image found by value",
)
paligemma = transformer(
    "PaliGemmaForConditionalGeneration",
    {
        "vision_config": {**VIT, "model_type": "siglip_vision_model", "projection_dim": 64},
        "text_config": {**GROUPED, "model_type": "gemma", "head_dim": 16},
        "image_token_id": IMAGE_TOKEN,
        "projection_dim": 64,
    },
    lambda size: {**_illustrated(size), "token_type_ids": torch.ones(size, 48, dtype=torch.long)},
    family="image and text",
)
idefics3 = transformer(
    "Idefics3ForConditionalGeneration",
    {
        "vision_config": VIT,
        "text_config": {**GROUPED, "model_type": "llama"},
        "image_token_id": IMAGE_TOKEN,
        "scale_factor": 2,
    },
    lambda size: {**_illustrated(size, 4), "pixel_values": torch.randn(size, 1, 3, IMAGE_SIZE, IMAGE_SIZE)},
    family="image and text",
)
vision_encoder_decoder = transformer(
    "VisionEncoderDecoderModel",
    {
        "encoder": {**VIT, "model_type": "vit"},
        "decoder": {**ENCODER, "model_type": "bert", "is_decoder": True, "add_cross_attention": True},
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
    lambda size: {**pixels(size), "labels": tokens(size)},
    family="image and text",
)
trocr = transformer(
    "VisionEncoderDecoderModel",
    {
        "encoder": {**VIT, "model_type": "deit"},
        "decoder": {
            "model_type": "trocr",
            "d_model": 64,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 128,
            "decoder_layerdrop": 0.0,
            "cross_attention_hidden_size": 64,
            "vocab_size": 512,
            "max_position_embeddings": 64,
        },
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
    lambda size: {**pixels(size), "labels": tokens(size)},
    family="image and text",
)


def _gridded(micro_batch_size: int) -> Batch:
    """One image of 8 x 8 patches in each text; pairs of patches merge, so 16 places hold it."""
    ids = tokens(micro_batch_size, 48, end=480)
    ids[:, 1], ids[:, 2:18], ids[:, 18] = 492, 490, 493
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(64 * micro_batch_size, 3 * 2 * 8 * 8),
        "image_grid_thw": torch.tensor([[1, 8, 8]] * micro_batch_size),
        "mm_token_type_ids": (ids == 490).long(),
        "labels": ids.clone(),
        "use_cache": False,
    }


SEEING = {
    "image_token_id": 490,
    "video_token_id": 491,
    "vision_start_token_id": 492,
    "vision_end_token_id": 493,
}
qwen2_vl = transformer(
    "Qwen2VLForConditionalGeneration",
    {
        "text_config": {
            **GROUPED,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "max_window_layers": 2,
        },
        "vision_config": {
            "depth": 2,
            "embed_dim": 64,
            "num_heads": 4,
            "hidden_size": 64,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "mlp_ratio": 2,
        },
        **SEEING,
    },
    _gridded,
    family="image and text",
    notes="positions computed from the images' grids",
)
qwen2_5_vl = transformer(
    "Qwen2_5_VLForConditionalGeneration",
    {
        "text_config": {
            **GROUPED,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "max_window_layers": 2,
        },
        "vision_config": {
            "depth": 2,
            "num_heads": 4,
            "hidden_size": 64,
            "intermediate_size": 128,
            "out_hidden_size": 64,
            "patch_size": 8,
            "window_size": 32,
            "fullatt_block_indexes": [1],
        },
        **SEEING,
    },
    _gridded,
    family="image and text",
    notes="windows of attention computed from the images' grids",
)
