"""State-space models, linear attention and other recurrences, of transformers."""

from __future__ import annotations

from typing import Any

from tests.zoo.decoders import GROUPED, SIZED, SPECIAL
from tests.zoo.entry import Entry, decoded, transformer
from tests.zoo.mixtures import EXPERTS

SCAN = {**SPECIAL, "hidden_size": 64, "num_hidden_layers": 3, "state_size": 8}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
SSD = {"mamba_d_state": 16, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16}


def _recurrent(class_name: str, fields: dict[str, Any], notes: str = "") -> Entry:
    return transformer(class_name, fields, decoded, family="recurrence", notes=notes)


mamba = _recurrent("MambaForCausalLM", SCAN, "the scan as a loop in Python")
falcon_mamba = _recurrent("FalconMambaForCausalLM", SCAN, "the scan as a loop in Python")
mamba2 = _recurrent(
    "Mamba2ForCausalLM", {**SCAN, "state_size": 16, "num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 16}
)
jamba = _recurrent(
    "JambaForCausalLM",
    {
        **GROUPED,
        "num_hidden_layers": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "use_mamba_kernels": False,
        "mamba_d_state": 8,
    },
    "attention, scans and experts in turns",
)
bamba = _recurrent("BambaForCausalLM", {**GROUPED, **SSD, "attn_layer_indices": [1]})
zamba2 = _recurrent(
    "Zamba2ForCausalLM",
    {
        **GROUPED,
        "num_hidden_layers": 4,
        "mamba_d_state": 16,
        "mamba_ngroups": 1,
        "n_mamba_heads": 8,
        "mamba_headdim": 16,
        "chunk_size": 16,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_mem_blocks": 1,
        "use_mem_rope": True,
    },
    "one attention block that several layers share",
)
falcon_h1 = _recurrent("FalconH1ForCausalLM", {**SIZED, **SSD, "mamba_d_ssm": 128})
granitemoehybrid = _recurrent(
    "GraniteMoeHybridForCausalLM",
    {
        **GROUPED,
        **SSD,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "layer_types": ["mamba", "attention", "mamba"],
    },
)
recurrent_gemma = _recurrent(
    "RecurrentGemmaForCausalLM",
    {**GROUPED, "lru_width": 64, "attention_window_size": 16},
    "a gated recurrence as a loop in Python",
)
rwkv = _recurrent(
    "RwkvForCausalLM",
    {**SPECIAL, "hidden_size": 64, "num_hidden_layers": 3, "attention_hidden_size": 64, "context_length": 64},
)
qwen3_next = _recurrent(
    "Qwen3NextForCausalLM",
    {**SIZED, **EXPERTS, **LINEAR, "num_hidden_layers": 8, "shared_expert_intermediate_size": 32},
    "gated delta rule, full attention in each fourth layer",
)
qwen3_5 = _recurrent("Qwen3_5ForCausalLM", {**SIZED, **LINEAR, "num_hidden_layers": 4})
lfm2 = _recurrent(
    "Lfm2ForCausalLM", {**GROUPED, "layer_types": ["conv", "full_attention", "conv"]}, "short convolutions"
)
xlstm = _recurrent(
    "xLSTMForCausalLM", {**SPECIAL, "hidden_size": 64, "num_heads": 4, "num_blocks": 2, "chunk_size": 16}
)
