"""Encoders with decoders over tokens, of transformers."""

from __future__ import annotations

from typing import Any

import torch

from tests.zoo.entry import VOCABULARY, Batch, Entry, tokens, transformer, translated

T5 = {
    "d_model": 64,
    "d_ff": 128,
    "d_kv": 16,
    "num_layers": 3,
    "num_heads": 4,
    "vocab_size": VOCABULARY,
    "decoder_start_token_id": 0,
}
BART = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
}


def _translator(class_name: str, fields: dict[str, Any], notes: str = "", batch: Any = translated) -> Entry:
    return transformer(class_name, fields, batch, family="encoder and decoder", notes=notes)


def _padded(micro_batch_size: int) -> Batch:
    batch = translated(micro_batch_size)
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch["attention_mask"][:, 20:] = 0
    return batch


t5 = _translator("T5ForConditionalGeneration", T5, "first layer has the relative bias")
t5_padded = _translator("T5ForConditionalGeneration", T5, "padded texts", _padded)
mt5 = _translator("MT5ForConditionalGeneration", T5)
umt5 = _translator("UMT5ForConditionalGeneration", T5)
longt5 = _translator("LongT5ForConditionalGeneration", {**T5, "local_radius": 7})
bart = _translator("BartForConditionalGeneration", BART)
mbart = _translator("MBartForConditionalGeneration", BART)
pegasus = _translator("PegasusForConditionalGeneration", BART)
pegasus_x = _translator(
    "PegasusXForConditionalGeneration", {**BART, "block_size": 16, "num_global_tokens": 4}, "global tokens"
)
bigbird_pegasus = _translator("BigBirdPegasusForConditionalGeneration", {**BART, "attention_type": "original_full"})
blenderbot = _translator("BlenderbotForConditionalGeneration", BART)
marian = _translator("MarianMTModel", BART)
m2m_100 = _translator("M2M100ForConditionalGeneration", BART)
plbart = _translator("PLBartForConditionalGeneration", BART)
led = _translator(
    "LEDForConditionalGeneration",
    {
        **{key: value for key, value in BART.items() if key != "max_position_embeddings"},
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 64,
        "attention_window": 16,
    },
)
prophetnet = _translator(
    "ProphetNetForConditionalGeneration",
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "max_position_embeddings": 64,
        "ngram": 2,
    },
    "predicts two tokens at once",
)
fsmt = _translator(
    "FSMTForConditionalGeneration",
    {
        **{key: value for key, value in BART.items() if key != "vocab_size"},
        "langs": ["en", "de"],
        "src_vocab_size": VOCABULARY,
        "tgt_vocab_size": VOCABULARY,
    },
    batch=lambda size: {**translated(size), "decoder_input_ids": tokens(size, 16)},
)
t5gemma = _translator(
    "T5GemmaForConditionalGeneration",
    {
        side: {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": VOCABULARY,
        }
        for side in ("encoder", "decoder")
    }
    | {"vocab_size": VOCABULARY},
)
encoder_decoder = _translator(
    "EncoderDecoderModel",
    {
        side: {
            "model_type": "bert",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": VOCABULARY,
            "is_decoder": side == "decoder",
            "add_cross_attention": side == "decoder",
        }
        for side in ("encoder", "decoder")
    }
    | {"decoder_start_token_id": 1, "pad_token_id": 0},
    batch=lambda size: {"input_ids": tokens(size), "labels": tokens(size, 16)},
)
