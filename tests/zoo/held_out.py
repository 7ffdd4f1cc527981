"""Models that were added last: nothing in the tracer was ever changed for one of them."""

from __future__ import annotations

from typing import Any

import torch

from tests.zoo.decoders import GROUPED, SIZED
from tests.zoo.encoders import ENCODER
from tests.zoo.entry import IMAGE_SIZE, Batch, Entry, decoded, labelled, masked, pixels, tokens, transformer, translated
from tests.zoo.images import VIT
from tests.zoo.mixtures import EXPERTS, LATENT
from tests.zoo.sounds import WAVE
from tests.zoo.translators import T5


def _held_out(class_name: str, fields: dict[str, Any], batch: Any = decoded, *, has_loss: bool = True) -> Entry:
    return transformer(class_name, fields, batch, family="held out", has_loss=has_loss)


def _video(micro_batch_size: int) -> Batch:
    return {
        "pixel_values": torch.randn(micro_batch_size, 4, 3, IMAGE_SIZE, IMAGE_SIZE),
        "labels": torch.ones(micro_batch_size, dtype=torch.long),
    }


nanochat = _held_out("NanoChatForCausalLM", GROUPED)
minicpm3 = _held_out(
    "MiniCPM3ForCausalLM", {key: value for key, value in LATENT.items() if "expert" not in key and "group" not in key}
)
doge = _held_out("DogeForCausalLM", GROUPED)
jais2 = _held_out("Jais2ForCausalLM", SIZED)
hyperclovax = _held_out("HyperCLOVAXForCausalLM", GROUPED)
ministral = _held_out("MinistralForCausalLM", SIZED)
qwen3_5_moe = _held_out(
    "Qwen3_5MoeForCausalLM",
    {
        **SIZED,
        **EXPERTS,
        "shared_expert_intermediate_size": 32,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_hidden_layers": 4,
    },
)
afmoe = _held_out("AfmoeForCausalLM", {**SIZED, **EXPERTS, "num_dense_layers": 1, "num_shared_experts": 1})
lfm2_moe = _held_out(
    "Lfm2MoeForCausalLM",
    {**GROUPED, **EXPERTS, "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
)
minimax_m2 = _held_out("MiniMaxM2ForCausalLM", {**SIZED, "num_local_experts": 4, "num_experts_per_tok": 2})
zamba = _held_out(
    "ZambaForCausalLM",
    {
        **GROUPED,
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "mamba_d_state": 8,
        "n_mamba_heads": 2,
        "use_mamba_kernels": False,
    },
)
splinter = _held_out(
    "SplinterForQuestionAnswering",
    ENCODER,
    lambda size: {
        "input_ids": tokens(size),
        "start_positions": torch.ones(size, dtype=torch.long),
        "end_positions": torch.full((size,), 5),
    },
)
xlm_roberta_xl = _held_out("XLMRobertaXLForMaskedLM", {**ENCODER, "pad_token_id": 1}, masked)
roberta_prelayernorm = _held_out("RobertaPreLayerNormForMaskedLM", {**ENCODER, "pad_token_id": 1}, masked)
visual_bert = _held_out(
    "VisualBertForPreTraining",
    {**ENCODER, "visual_embedding_dim": 16},
    lambda size: {
        "input_ids": tokens(size),
        "attention_mask": torch.ones(size, 32, dtype=torch.long),
        "visual_embeds": torch.randn(size, 8, 16),
        "visual_attention_mask": torch.ones(size, 8),
        "labels": tokens(size, 40),
    },
)
mt5_classifier = _held_out(
    "MT5ForSequenceClassification",
    {**T5, "num_labels": 3, "eos_token_id": 1, "pad_token_id": 0},
    lambda size: {
        "input_ids": torch.cat([tokens(size, 31), torch.ones(size, 1, dtype=torch.long)], 1),
        "labels": torch.ones(size, dtype=torch.long),
    },
)
blenderbot_small = _held_out(
    "BlenderbotSmallForConditionalGeneration",
    {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "vocab_size": 512,
        "max_position_embeddings": 64,
    },
    translated,
)
hiera = _held_out(
    "HieraForImageClassification",
    {"image_size": [IMAGE_SIZE, IMAGE_SIZE], "embed_dim": 16, "depths": [1, 1, 2, 1], "num_heads": [1, 2, 4, 8]},
    labelled,
)
swiftformer = _held_out(
    "SwiftFormerForImageClassification",
    {"image_size": IMAGE_SIZE, "depths": [1, 1, 1, 1], "embed_dims": [16, 16, 32, 32]},
    labelled,
)
mobilevitv2 = _held_out(
    "MobileViTV2ForImageClassification",
    {"image_size": IMAGE_SIZE, "width_multiplier": 0.25, "expand_ratio": 1.0},
    labelled,
)
vivit = _held_out("VivitForVideoClassification", {**VIT, "num_frames": 4, "tubelet_size": [2, 16, 16]}, _video)
timesformer = _held_out("TimesformerForVideoClassification", {**VIT, "num_frames": 4}, _video)
clipseg = _held_out(
    "CLIPSegForImageSegmentation",
    {
        "text_config": {**ENCODER, "bos_token_id": 1, "eos_token_id": 2},
        "vision_config": VIT,
        "projection_dim": 64,
        "reduce_dim": 16,
        "extract_layers": [0, 1, 2],
        "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 32,
    },
    lambda size: {"input_ids": tokens(size, 16), **pixels(size)},
    has_loss=False,
)
unispeech = _held_out(
    "UniSpeechForCTC",
    WAVE,
    lambda size: {"input_values": torch.randn(size, 4000), "labels": tokens(size, 12, end=32)},
)
perceiver = _held_out(
    "PerceiverForMaskedLM",
    {
        "num_latents": 16,
        "d_latents": 32,
        "d_model": 32,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 2,
        "num_cross_attention_heads": 2,
        "qk_channels": 32,
        "v_channels": 32,
        "vocab_size": 262,
        "max_position_embeddings": 64,
    },
    lambda size: {"inputs": tokens(size, 64, end=262), "labels": tokens(size, 64, end=262)},
)
idefics2 = _held_out(
    "Idefics2ForConditionalGeneration",
    {
        "vision_config": VIT,
        "text_config": {**GROUPED, "model_type": "mistral"},
        "perceiver_config": {
            "resampler_n_latents": 4,
            "resampler_depth": 1,
            "resampler_n_heads": 2,
            "resampler_head_dim": 16,
            "num_key_value_heads": 1,
        },
        "image_token_id": 511,
    },
    lambda size: {**_with_places(size, 4), "pixel_values": torch.randn(size, 1, 3, IMAGE_SIZE, IMAGE_SIZE)},
)


def _with_places(micro_batch_size: int, num_places: int) -> Batch:
    ids = tokens(micro_batch_size, 32, end=500)
    ids[:, 1 : 1 + num_places] = 511
    return {"input_ids": ids, "labels": ids.clone(), "use_cache": False}
