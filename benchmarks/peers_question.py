"""What is asked of every planner, and what each answers: values, and the questions of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """One model on one machine: `global_batch_size` samples of `sequence_length` tokens per step, bf16, AdamW."""

    name: str
    config: dict[str, Any]
    """A Hugging Face config.json."""
    sequence_length: int
    global_batch_size: int
    hardware: str
    """A shipped profile."""
    num_nodes: int
    ranks_per_node: int = 8

    @property
    def num_ranks(self) -> int:
        """All ranks; for those that know data parallelism alone, the number of copies of the batch."""
        return self.num_nodes * self.ranks_per_node


@dataclass(frozen=True, slots=True)
class Answer:
    """What a planner says to a question; None where it does not say that."""

    chosen: str
    memory_bytes: int | None = None
    """Of the fullest rank."""
    step_s: float | None = None
    seconds: float | None = None
    """Of the search alone, without imports and without reading the model."""
    num_considered: int | None = None
    """Points that it looked at or that its space has, where it says so."""
    note: str = ""


_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5}

QUESTIONS = {
    "gpt2": Question(
        "GPT-2, 124 M",
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        sequence_length=1024,
        global_batch_size=512,
        hardware="p4d-a100-40gb",
        num_nodes=1,
    ),
    "llama-7b": Question(
        "Llama-2-7B",
        {
            **_LLAMA,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        sequence_length=2048,
        global_batch_size=64,
        hardware="dgx-a100-80gb",
        num_nodes=1,
    ),
    "llama-70b": Question(
        "Llama-2-70B",
        {
            **_LLAMA,
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        sequence_length=4096,
        global_batch_size=512,
        hardware="dgx-a100-80gb",
        num_nodes=8,
    ),
}
"""GPT-2's config is transformers' default, the others are those of meta-llama/Llama-2-7b-hf and Llama-2-70b-hf."""
