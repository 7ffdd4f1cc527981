"""Decoders with expert layers, of transformers."""

from __future__ import annotations

from typing import Any

from tests.zoo.decoders import GROUPED, PLAIN, SIZED
from tests.zoo.entry import LENGTH, Entry, decoded, tokens, transformer

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    **PLAIN,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}


def _experts(class_name: str, fields: dict[str, Any], notes: str = "") -> Entry:
    return transformer(class_name, fields, decoded, family="mixture of experts", notes=notes)


mixtral = _experts("MixtralForCausalLM", {**GROUPED, **LOCAL})
qwen2_moe = _experts("Qwen2MoeForCausalLM", {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 64})
qwen3_moe = _experts("Qwen3MoeForCausalLM", {**SIZED, **EXPERTS})
olmoe = _experts("OlmoeForCausalLM", {**GROUPED, **EXPERTS})
deepseek_v2 = _experts("DeepseekV2ForCausalLM", LATENT, "latent attention: keys wider than values")
deepseek_v3 = _experts("DeepseekV3ForCausalLM", LATENT, "first layer dense, routing in groups")
gpt_oss = _experts("GptOssForCausalLM", {**SIZED, **LOCAL}, "attention sinks")
granitemoe = _experts("GraniteMoeForCausalLM", {**GROUPED, **LOCAL})
granitemoeshared = _experts("GraniteMoeSharedForCausalLM", {**GROUPED, **LOCAL, "shared_intermediate_size": 32})
phimoe = _experts("PhimoeForCausalLM", {**GROUPED, **LOCAL})
llama4 = _experts(
    "Llama4ForCausalLM",
    {**SIZED, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 128, "num_hidden_layers": 4},
    "each layer runs all experts",
)
dbrx = _experts(
    "DbrxForCausalLM",
    {
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 3,
        "max_seq_len": 64,
        "vocab_size": 512,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2, "ffn_act_fn": {"name": "silu"}},
    },
)
jetmoe = _experts("JetMoeForCausalLM", {**SIZED, "kv_channels": 16, "num_key_value_heads": 2, **LOCAL})
glm4_moe = _experts(
    "Glm4MoeForCausalLM",
    {**SIZED, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1},
)
ernie4_5_moe = _experts(
    "Ernie4_5_MoeForCausalLM", {**SIZED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32}
)
minimax = _experts("MiniMaxForCausalLM", {**SIZED, **LOCAL, "block_size": 16}, "lightning attention")
dots1 = _experts(
    "Dots1ForCausalLM",
    {**SIZED, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1},
)
flex_olmo = _experts("FlexOlmoForCausalLM", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2})
hunyuan_moe = _experts("HunYuanMoEV1ForCausalLM", {**SIZED, "num_experts": 4, "moe_topk": 2})
switch_transformers = transformer(
    "SwitchTransformersForConditionalGeneration",
    {
        "vocab_size": 512,
        "d_model": 64,
        "d_ff": 128,
        "d_kv": 16,
        "num_layers": 2,
        "num_heads": 4,
        "num_experts": 4,
        "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 1,
        "expert_capacity": 64,
        "decoder_start_token_id": 0,
    },
    lambda size: {"input_ids": tokens(size), "labels": tokens(size, LENGTH // 2), "use_cache": False},
    family="mixture of experts",
    notes="loops over the experts that were chosen",
)
nllb_moe = transformer(
    "NllbMoeForConditionalGeneration",
    {
        "vocab_size": 512,
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "num_experts": 4,
        "encoder_sparse_step": 2,
        "decoder_sparse_step": 2,
        "expert_capacity": 64,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    },
    lambda size: {"input_ids": tokens(size), "labels": tokens(size, LENGTH // 2), "use_cache": False},
    family="mixture of experts",
    notes="loops over the experts that were chosen",
)
