"""Encoders over tokens: masked language models and classifiers of transformers."""

from __future__ import annotations

from typing import Any

import torch

from tests.zoo.entry import VOCABULARY, Batch, Entry, masked, text, tokens, transformer

ENCODER = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}


def _masked(class_name: str, fields: dict[str, Any], notes: str = "", batch: Any = masked) -> Entry:
    return transformer(class_name, fields, batch, family="encoder", notes=notes)


def _padded(micro_batch_size: int) -> Batch:
    """The last quarter of each text is padding."""
    batch = masked(micro_batch_size)
    batch["attention_mask"][:, 24:] = 0
    return batch


def _long(micro_batch_size: int) -> Batch:
    ids = tokens(micro_batch_size, 96)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


bert = _masked("BertForMaskedLM", ENCODER, "dropout, a mask of ones")
bert_padded = _masked("BertForMaskedLM", ENCODER, "dropout, padded texts", _padded)
roberta = _masked("RobertaForMaskedLM", {**ENCODER, "pad_token_id": 1})
electra = _masked("ElectraForMaskedLM", {**ENCODER, "embedding_size": 32})
albert = _masked("AlbertForMaskedLM", {**ENCODER, "embedding_size": 32}, "one layer called again and again")
distilbert = _masked(
    "DistilBertForMaskedLM", {"dim": 64, "hidden_dim": 128, "n_layers": 3, "n_heads": 4, "vocab_size": VOCABULARY}
)
deberta = _masked("DebertaForMaskedLM", {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]})
deberta_v2 = _masked(
    "DebertaV2ForMaskedLM",
    {**ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
)
modernbert = _masked("ModernBertForMaskedLM", {**ENCODER, **SPECIAL})
mpnet = _masked("MPNetForMaskedLM", ENCODER)
longformer = _masked("LongformerForMaskedLM", {**ENCODER, "attention_window": [16] * 3}, "windows and global tokens")
big_bird = _masked(
    "BigBirdForMaskedLM",
    {**ENCODER, "block_size": 8, "num_random_blocks": 1, "attention_type": "block_sparse"},
    "random blocks of attention",
    _long,
)
camembert = _masked("CamembertForMaskedLM", {**ENCODER, "pad_token_id": 1})
xlm_roberta = _masked("XLMRobertaForMaskedLM", {**ENCODER, "pad_token_id": 1})
convbert = _masked("ConvBertForMaskedLM", {**ENCODER, "embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 5})
fnet = _masked("FNetForMaskedLM", ENCODER, "Fourier transforms in place of attention", text)
funnel = _masked(
    "FunnelForMaskedLM",
    {"vocab_size": VOCABULARY, "block_sizes": [1, 1], "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128},
    "pools its tokens",
)
ibert = _masked("IBertForMaskedLM", ENCODER)
layoutlm = _masked(
    "LayoutLMForMaskedLM",
    ENCODER,
    batch=lambda size: {**masked(size), "bbox": torch.ones(size, 32, 4, dtype=torch.long)},
)
megatron_bert = _masked("MegatronBertForMaskedLM", ENCODER)
mobilebert = _masked("MobileBertForMaskedLM", {**ENCODER, "embedding_size": 32, "intra_bottleneck_size": 32})
nystromformer = _masked(
    "NystromformerForMaskedLM", {**ENCODER, "num_landmarks": 8, "segment_means_seq_len": 32, "conv_kernel_size": 5}
)
rembert = _masked("RemBertForMaskedLM", {**ENCODER, "input_embedding_size": 32, "output_embedding_size": 64})
roformer = _masked("RoFormerForMaskedLM", {**ENCODER, "embedding_size": 32})
squeezebert = _masked("SqueezeBertForMaskedLM", {**ENCODER, "embedding_size": 64}, "grouped convolutions")
xlm = _masked("XLMWithLMHeadModel", {"vocab_size": VOCABULARY, "emb_dim": 64, "n_layers": 3, "n_heads": 4})
xmod = _masked("XmodForMaskedLM", {**ENCODER, "pad_token_id": 1, "default_language": "en_XX", "languages": ["en_XX"]})
esm = _masked("EsmForMaskedLM", {**ENCODER, "mask_token_id": 4, "position_embedding_type": "rotary"})
ernie = _masked("ErnieForMaskedLM", ENCODER)
data2vec_text = _masked("Data2VecTextForMaskedLM", {**ENCODER, "pad_token_id": 1})
eurobert = _masked("EuroBertForMaskedLM", {**ENCODER, **SPECIAL})
luke = _masked("LukeForMaskedLM", {**ENCODER, "entity_vocab_size": 16, "entity_emb_size": 16})
canine = transformer(
    "CanineForSequenceClassification",
    {**ENCODER, "num_hash_buckets": 64, "local_transformer_stride": 16, "num_labels": 3},
    lambda size: {"input_ids": tokens(size, 64), "labels": torch.ones(size, dtype=torch.long)},
    family="encoder",
    notes="characters, hashed",
)
bert_for_questions = transformer(
    "BertForQuestionAnswering",
    ENCODER,
    lambda size: {
        "input_ids": tokens(size),
        "start_positions": torch.ones(size, dtype=torch.long),
        "end_positions": torch.full((size,), 5),
    },
    family="encoder",
)
bert_for_choices = transformer(
    "BertForMultipleChoice",
    ENCODER,
    lambda size: {
        "input_ids": tokens(size, 64).reshape(size, 2, 32),
        "labels": torch.ones(size, dtype=torch.long),
    },
    family="encoder",
)
deberta_for_tokens = transformer(
    "DebertaV2ForTokenClassification",
    {**ENCODER, "num_labels": 5},
    lambda size: {"input_ids": tokens(size), "labels": tokens(size) % 5},
    family="encoder",
)
reformer = transformer(
    "ReformerModelWithLMHead",
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "feed_forward_size": 128,
        "num_attention_heads": 4,
        "attention_head_size": 16,
        "attn_layers": ["local", "local"],
        "local_attn_chunk_length": 8,
        "axial_pos_shape": [4, 8],
        "axial_pos_embds_dim": [32, 32],
        "is_decoder": True,
    },
    text,
    family="encoder",
    notes="reversible layers: a backward of its own",
)
