"""Dense decoders: causal language models of transformers."""

from __future__ import annotations

from typing import Any

from tests.zoo.entry import VOCABULARY, Entry, decoded, text, transformer

LAYERS = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
SPECIAL = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PLAIN = {**LAYERS, **SPECIAL}
GROUPED = {**PLAIN, "num_key_value_heads": 2}
SIZED = {**GROUPED, "head_dim": 16}
GPT = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, **SPECIAL}


def _causal(class_name: str, fields: dict[str, Any], notes: str = "", batch: Any = decoded) -> Entry:
    return transformer(class_name, fields, batch, family="decoder", notes=notes)


llama = _causal("LlamaForCausalLM", GROUPED)
mistral = _causal("MistralForCausalLM", GROUPED)
qwen2 = _causal("Qwen2ForCausalLM", GROUPED)
qwen3 = _causal("Qwen3ForCausalLM", SIZED)
gemma = _causal("GemmaForCausalLM", SIZED, "tied embeddings")
gemma2 = _causal("Gemma2ForCausalLM", SIZED, "sliding windows, soft caps")
gemma3 = _causal("Gemma3ForCausalLM", SIZED)
gemma3n = _causal(
    "Gemma3nForCausalLM",
    {
        **SIZED,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 16,
        "intermediate_size": [128] * 4,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 4,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.0] * 4,
        "laurel_rank": 8,
    },
    "layers that share keys and values",
)
vaultgemma = _causal("VaultGemmaForCausalLM", SIZED)
phi = _causal("PhiForCausalLM", PLAIN)
phi3 = _causal("Phi3ForCausalLM", GROUPED)
gpt_neox = _causal("GPTNeoXForCausalLM", PLAIN)
opt = _causal("OPTForCausalLM", {**PLAIN, "ffn_dim": 128, "word_embed_proj_dim": 64})
stablelm = _causal("StableLmForCausalLM", GROUPED)
starcoder2 = _causal("Starcoder2ForCausalLM", GROUPED)
olmo = _causal("OlmoForCausalLM", GROUPED)
olmo2 = _causal("Olmo2ForCausalLM", GROUPED)
olmo3 = _causal("Olmo3ForCausalLM", GROUPED)
cohere = _causal("CohereForCausalLM", GROUPED)
cohere2 = _causal("Cohere2ForCausalLM", GROUPED)
granite = _causal("GraniteForCausalLM", GROUPED)
nemotron = _causal("NemotronForCausalLM", SIZED)
glm = _causal("GlmForCausalLM", SIZED)
glm4 = _causal("Glm4ForCausalLM", SIZED)
smollm3 = _causal("SmolLM3ForCausalLM", GROUPED)
helium = _causal("HeliumForCausalLM", SIZED)
persimmon = _causal("PersimmonForCausalLM", PLAIN)
diffllama = _causal("DiffLlamaForCausalLM", GROUPED)
exaone4 = _causal("Exaone4ForCausalLM", GROUPED)
seed_oss = _causal("SeedOssForCausalLM", SIZED)
arcee = _causal("ArceeForCausalLM", GROUPED)
apertus = _causal("ApertusForCausalLM", GROUPED)
bitnet = _causal("BitNetForCausalLM", GROUPED)
ernie4_5 = _causal("Ernie4_5ForCausalLM", SIZED)
hunyuan_dense = _causal("HunYuanDenseV1ForCausalLM", SIZED)
modernbert_decoder = _causal(
    "ModernBertDecoderForCausalLM", {**PLAIN, "cls_token_id": 1, "sep_token_id": 2, "num_hidden_layers": 4}
)
gpt2 = _causal("GPT2LMHeadModel", GPT, "dropout, tied embeddings")
gpt_neo = _causal(
    "GPTNeoForCausalLM",
    {
        **{key: value for key, value in PLAIN.items() if not key.startswith("num")},
        "num_layers": 4,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 2]],
        "max_position_embeddings": 64,
        "window_size": 16,
    },
    "global and local attention in turns",
)
gptj = _causal("GPTJForCausalLM", {**GPT, "rotary_dim": 8})
codegen = _causal("CodeGenForCausalLM", {**GPT, "rotary_dim": 8, "n_ctx": 64})
gpt_bigcode = _causal("GPTBigCodeForCausalLM", GPT, "one head of keys and values")
bloom = _causal("BloomForCausalLM", {**SPECIAL, "hidden_size": 64, "n_layer": 3, "n_head": 4}, "alibi")
falcon = _causal("FalconForCausalLM", {**SPECIAL, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4})
mpt = _causal("MptForCausalLM", {"d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 64, **SPECIAL}, "alibi")
biogpt = _causal("BioGptForCausalLM", {**PLAIN, "max_position_embeddings": 64, "layerdrop": 0.0})
xglm = _causal(
    "XGLMForCausalLM",
    {**SPECIAL, "d_model": 64, "ffn_dim": 128, "num_layers": 3, "attention_heads": 4, "layerdrop": 0.0},
)
ctrl = _causal("CTRLLMHeadModel", {"n_embd": 64, "dff": 128, "n_layer": 3, "n_head": 4, "n_positions": 64, **SPECIAL})
openai_gpt = _causal("OpenAIGPTLMHeadModel", GPT, batch=text)
xlnet = _causal(
    "XLNetLMHeadModel",
    {**SPECIAL, "d_model": 64, "n_layer": 3, "n_head": 4, "d_inner": 128},
    batch=lambda size: {**text(size), "use_mems": False},
)
llama_classifier = transformer(
    "LlamaForSequenceClassification",
    {**GROUPED, "num_labels": 3},
    lambda size: {**decoded(size), "labels": decoded(size)["input_ids"][:, 0] % 3},
    family="decoder",
)
