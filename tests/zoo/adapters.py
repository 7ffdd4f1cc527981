"""Frozen models with small trained parts, of peft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from tests.zoo import decoders, encoders, images, mixtures, translators
from tests.zoo.entry import Batch, Entry


def _adapted(model: Entry, make_config: Callable[[Any], Any], notes: str = "") -> Entry:
    def make(micro_batch_size: int) -> tuple[nn.Module, Batch]:
        import peft

        module, batch = model(micro_batch_size)
        return peft.get_peft_model(module, make_config(peft)), batch  # type: ignore[arg-type]

    return Entry("adapter", make, notes)


lora_llama = _adapted(
    decoders.llama, lambda peft: peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
)
lora_all_linear = _adapted(decoders.qwen2, lambda peft: peft.LoraConfig(r=4, target_modules="all-linear"))
dora = _adapted(
    decoders.llama,
    lambda peft: peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], use_dora=True),
    "weights decomposed",
)
lora_mixtral = _adapted(mixtures.mixtral, lambda peft: peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
lora_vit = _adapted(
    images.vit, lambda peft: peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])
)
lora_t5 = _adapted(translators.t5, lambda peft: peft.LoraConfig(r=4, target_modules=["q", "v"]))
ia3 = _adapted(
    encoders.bert,
    lambda peft: peft.IA3Config(target_modules=["key", "value", "output.dense"], feedforward_modules=["output.dense"]),
)
prompts = _adapted(
    decoders.gpt2,
    lambda peft: peft.PromptTuningConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=4, num_layers=3, token_dim=64, num_attention_heads=4
    ),
)
prefix = _adapted(
    decoders.llama,
    lambda peft: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "keys and values of a trained prefix",
)


def _first_layers_frozen(micro_batch_size: int) -> tuple[nn.Module, Batch]:
    module, batch = decoders.llama(micro_batch_size)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("layers.2" in name or "lm_head" in name)
    return module, batch


first_layers_frozen = Entry("adapter", _first_layers_frozen, "backward stops at the third layer")
