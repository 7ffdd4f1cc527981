"""Networks over sound, of transformers."""

from __future__ import annotations

from typing import Any

import torch

from tests.zoo.entry import Batch, Entry, tokens, transformer, wave

WAVE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 32,
    "conv_dim": (32, 32, 32),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}
SPEECH = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "vocab_size": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def _ctc(class_name: str, fields: dict[str, Any], notes: str = "") -> Entry:
    return transformer(class_name, fields, _spoken, family="sound", notes=notes)


def _spoken(micro_batch_size: int) -> Batch:
    return {**wave(micro_batch_size), "labels": tokens(micro_batch_size, 12, end=32)}


def _spectrum(micro_batch_size: int) -> Batch:
    return {
        "input_values": torch.randn(micro_batch_size, 64, 32),
        "labels": torch.ones(micro_batch_size, dtype=torch.long),
    }


wav2vec2 = _ctc("Wav2Vec2ForCTC", WAVE, "weight norm, CTC")
hubert = _ctc("HubertForCTC", WAVE)
wav2vec2_layerdrop = _ctc("Wav2Vec2ForCTC", {**WAVE, "layerdrop": 0.5}, "LayerDrop: traced, and verified, as if off")
wavlm = _ctc("WavLMForCTC", {**WAVE, "num_buckets": 32, "max_bucket_distance": 64})
unispeech_sat = _ctc("UniSpeechSatForCTC", WAVE)
data2vec_audio = _ctc("Data2VecAudioForCTC", {**WAVE, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 5})
sew = _ctc("SEWForCTC", {**WAVE, "squeeze_factor": 2})
wav2vec2_conformer = _ctc("Wav2Vec2ConformerForCTC", {**WAVE, "conv_depthwise_kernel_size": 5})
wav2vec2_bert = transformer(
    "Wav2Vec2BertForCTC",
    {**WAVE, "feature_projection_input_dim": 32, "conv_depthwise_kernel_size": 5},
    lambda size: {"input_features": torch.randn(size, 64, 32), "labels": tokens(size, 12, end=32)},
    family="sound",
)
whisper = transformer(
    "WhisperForConditionalGeneration",
    {
        **SPEECH,
        "max_source_positions": 50,
        "max_target_positions": 64,
        "num_mel_bins": 16,
        "begin_suppress_tokens": None,
    },
    lambda size: {"input_features": torch.randn(size, 16, 100), "labels": tokens(size, 16), "use_cache": False},
    family="sound",
)
speech_to_text = transformer(
    "Speech2TextForConditionalGeneration",
    {**SPEECH, "input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 100},
    lambda size: {"input_features": torch.randn(size, 64, 16), "labels": tokens(size, 16), "use_cache": False},
    family="sound",
)
moonshine = transformer(
    "MoonshineForConditionalGeneration",
    {
        "hidden_size": 64,
        "intermediate_size": 128,
        "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2,
        "encoder_num_attention_heads": 4,
        "decoder_num_attention_heads": 4,
        "vocab_size": 512,
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
    },
    lambda size: {"input_values": torch.randn(size, 8000), "labels": tokens(size, 16), "use_cache": False},
    family="sound",
)
audio_spectrogram = transformer(
    "ASTForAudioClassification",
    {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_length": 64,
        "num_mel_bins": 32,
    },
    _spectrum,
    family="sound",
)
encodec = transformer(
    "EncodecModel",
    {
        "num_filters": 8,
        "hidden_size": 32,
        "num_lstm_layers": 1,
        "codebook_size": 64,
        "upsampling_ratios": [4, 4],
        "target_bandwidths": [24.0],
    },
    lambda size: {"input_values": torch.randn(size, 1, 2000)},
    family="sound",
    notes="an LSTM between convolutions; nearest codes",
    has_loss=False,
)
univnet = transformer(
    "UnivNetModel",
    {
        "model_hidden_channels": 8,
        "num_mel_bins": 16,
        "resblock_kernel_sizes": [3],
        "resblock_stride_sizes": [4],
        "resblock_dilation_sizes": [[1, 3]],
    },
    lambda size: {"input_features": torch.randn(size, 20, 16), "noise_sequence": torch.randn(size, 20, 64)},
    family="sound",
    has_loss=False,
)
