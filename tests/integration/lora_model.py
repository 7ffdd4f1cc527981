"""A frozen llama with adapters of peft, as a user's file has it."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 512


def llama(micro_batch_size: int, sequence_length: int = 64, width: int = 128, depth: int = 4):
    """Adapters of rank 8 on queries and values; the head is trained whole."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=depth,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    adapters = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"])
    model: nn.Module = get_peft_model(LlamaForCausalLM(config), adapters)
    ids = torch.arange(micro_batch_size * sequence_length).reshape(micro_batch_size, -1) % VOCABULARY
    return model, {"input_ids": ids, "labels": ids, "use_cache": False}
