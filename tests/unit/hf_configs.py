"""Small configs of Hugging Face models, one or more for each task that a batch is known for."""

from __future__ import annotations

from typing import Any

_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
    **_IDS,
}
_LLAMA = {**_TEXT, "num_key_value_heads": 2}
_BERT = {**_TEXT, "max_position_embeddings": 64, "type_vocab_size": 2}
_BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
    **_IDS,
}
_T5 = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 1, "num_heads": 4, "vocab_size": 128}
_VIT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
_DETR = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": {"model_type": "resnet", **_RESNET, "out_features": ["stage2"]},
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 10,
}
_WAV = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 32,
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 2],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}
_WHISPER = {
    **{key: value for key, value in _BART.items() if key != "max_position_embeddings"},
    "max_source_positions": 20,
    "max_target_positions": 64,
    "num_mel_bins": 16,
    "begin_suppress_tokens": None,
    "suppress_tokens": None,
}
_CLIP_TEXT = {**_TEXT, "max_position_embeddings": 40}
_SERIES = {
    "prediction_length": 8,
    "context_length": 16,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 2,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
_PATCHTST = {
    "num_input_channels": 3,
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 8,
    "d_model": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "ffn_dim": 32,
    "prediction_length": 8,
}
_QWEN_VL = {
    "text_config": {**_LLAMA, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
    "image_token_id": 120,
    "video_token_id": 121,
    "vision_start_token_id": 122,
    "vision_end_token_id": 123,
}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("llama", _LLAMA),
    "GPT2LMHeadModel": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 128}),
    "MixtralForCausalLM": ("mixtral", {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "BertForMaskedLM": ("bert", _BERT),
    "BertForPreTraining": ("bert", _BERT),
    "BertForNextSentencePrediction": ("bert", _BERT),
    "BertForSequenceClassification": ("bert", _BERT),
    "BertForTokenClassification": ("bert", _BERT),
    "BertForQuestionAnswering": ("bert", _BERT),
    "BertForMultipleChoice": ("bert", _BERT),
    "RobertaForMaskedLM": ("roberta", _BERT),
    "ElectraForPreTraining": ("electra", {**_BERT, "embedding_size": 16}),
    "AlbertForPreTraining": ("albert", {**_BERT, "embedding_size": 16}),
    "LlamaForSequenceClassification": ("llama", _LLAMA),
    "LayoutLMForQuestionAnswering": ("layoutlm", _BERT),
    "T5ForConditionalGeneration": ("t5", {**_T5, "decoder_start_token_id": 0}),
    "BartForConditionalGeneration": ("bart", _BART),
    "BartForSequenceClassification": ("bart", _BART),
    "ViTForImageClassification": ("vit", _VIT),
    "ResNetForImageClassification": ("resnet", _RESNET),
    "ViTForMaskedImageModeling": ("vit", {**_VIT, "encoder_stride": 8}),
    "ViTMAEForPreTraining": (
        "vit_mae",
        {
            **_VIT,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
    ),
    "DetrForObjectDetection": ("detr", {**_DETR, "num_labels": 5}),
    "YolosForObjectDetection": ("yolos", {**_VIT, "num_detection_tokens": 10, "image_size": [32, 32]}),
    "SegformerForSemanticSegmentation": (
        "segformer",
        {
            "hidden_sizes": [8, 8, 8, 8],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "EomtForUniversalSegmentation": (
        "eomt",
        {**_VIT, "num_blocks": 1, "num_queries": 5, "num_labels": 4, "num_upscale_blocks": 1, "train_num_points": 16},
    ),
    "VideoMAEForVideoClassification": ("videomae", {**_VIT, "num_frames": 4, "tubelet_size": 2}),
    "VideoMAEForPreTraining": (
        "videomae",
        {
            **_VIT,
            "num_frames": 4,
            "tubelet_size": 2,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
    ),
    "Wav2Vec2ForCTC": ("wav2vec2", _WAV),
    "Wav2Vec2ForSequenceClassification": ("wav2vec2", _WAV),
    "Wav2Vec2ForAudioFrameClassification": ("wav2vec2", _WAV),
    "Wav2Vec2ForXVector": (
        "wav2vec2",
        {**_WAV, "tdnn_dim": [16] * 5, "tdnn_kernel": [1] * 5, "tdnn_dilation": [1] * 5},
    ),
    "HubertForCTC": ("hubert", _WAV),
    "MoonshineForConditionalGeneration": (
        "moonshine",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "encoder_num_hidden_layers": 1,
            "decoder_num_hidden_layers": 1,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "vocab_size": 128,
            "decoder_start_token_id": 1,
            **_IDS,
        },
    ),
    "ASTForAudioClassification": (
        "audio-spectrogram-transformer",
        {**_VIT, "max_length": 32, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8},
    ),
    "WhisperForConditionalGeneration": ("whisper", _WHISPER),
    "WhisperForAudioClassification": ("whisper", _WHISPER),
    "Speech2TextForConditionalGeneration": (
        "speech_to_text",
        {
            **{key: value for key, value in _BART.items() if key != "max_position_embeddings"},
            "max_source_positions": 256,
            "max_target_positions": 64,
            "input_feat_per_channel": 8,
            "conv_channels": 16,
        },
    ),
    "CLIPModel": ("clip", {"text_config": _CLIP_TEXT, "vision_config": _VIT, "projection_dim": 16}),
    "SiglipModel": ("siglip", {"text_config": {**_CLIP_TEXT, "projection_size": 32}, "vision_config": _VIT}),
    "ClapModel": (
        "clap",
        {
            "text_config": {**_TEXT, "max_position_embeddings": 64},
            "audio_config": {
                "spec_size": 64,
                "num_mel_bins": 16,
                "patch_embeds_hidden_size": 8,
                "depths": [1, 1],
                "num_attention_heads": [1, 2],
                "hidden_size": 16,
                "window_size": 4,
                "patch_size": 4,
                "patch_stride": [4, 4],
            },
            "projection_dim": 16,
        },
    ),
    "LlavaForConditionalGeneration": (
        "llava",
        {
            "text_config": {"model_type": "llama", **_LLAMA},
            "vision_config": {"model_type": "clip_vision_model", **_VIT},
            "image_token_index": 120,
        },
    ),
    "PaliGemmaForConditionalGeneration": (
        "paligemma",
        {
            "text_config": {"model_type": "gemma", **_LLAMA, "head_dim": 8},
            "vision_config": {"model_type": "siglip_vision_model", **_VIT, "projection_dim": 32},
            "projection_dim": 32,
            "image_token_index": 120,
        },
    ),
    "Gemma3ForConditionalGeneration": (
        "gemma3",
        {
            "text_config": {**_LLAMA, "head_dim": 8},
            "vision_config": _VIT,
            "mm_tokens_per_image": 4,
            "image_token_index": 120,
            "boi_token_index": 121,
            "eoi_token_index": 122,
        },
    ),
    "Idefics3ForConditionalGeneration": (
        "idefics3",
        {
            "text_config": {"model_type": "llama", **_LLAMA},
            "vision_config": _VIT,
            "scale_factor": 2,
            "image_token_id": 120,
        },
    ),
    "Qwen2VLForConditionalGeneration": (
        "qwen2_vl",
        {
            **_QWEN_VL,
            "vision_config": {"depth": 1, "embed_dim": 32, "num_heads": 4, "hidden_size": 32, "patch_size": 8},
        },
    ),
    "Qwen2_5_VLForConditionalGeneration": (
        "qwen2_5_vl",
        {
            **_QWEN_VL,
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 4,
                "out_hidden_size": 32,
                "patch_size": 8,
                "fullatt_block_indexes": [0],
            },
        },
    ),
    "InternVLForConditionalGeneration": (
        "internvl",
        {
            "text_config": {"model_type": "qwen2", **_LLAMA},
            "vision_config": {**_VIT, "image_size": [32, 32], "patch_size": [8, 8]},
            "image_token_id": 120,
        },
    ),
    "Idefics2ForConditionalGeneration": (
        "idefics2",
        {
            "text_config": {"model_type": "mistral", **_LLAMA},
            "vision_config": _VIT,
            "perceiver_config": {
                "resampler_n_latents": 4,
                "resampler_depth": 1,
                "resampler_n_heads": 4,
                "resampler_head_dim": 8,
                "num_key_value_heads": 2,
            },
            "image_token_id": 120,
        },
    ),
    "VisionEncoderDecoderModel": (
        "vision-encoder-decoder",
        {
            "encoder": {"model_type": "vit", **_VIT},
            "decoder": {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}
            | {"vocab_size": 128, "is_decoder": True, "add_cross_attention": True},
            "decoder_start_token_id": 1,
            "pad_token_id": 0,
        },
    ),
    "BlipForConditionalGeneration": (
        "blip",
        {"text_config": {**_TEXT, "max_position_embeddings": 64, "encoder_hidden_size": 32}, "vision_config": _VIT},
    ),
    "GitForCausalLM": ("git", {**_BERT, "vision_config": _VIT, "max_position_embeddings": 128}),
    "PatchTSTForPrediction": ("patchtst", _PATCHTST),
    "PatchTSTForClassification": ("patchtst", {**_PATCHTST, "num_targets": 4, "use_cls_token": True}),
    "PatchTSTForRegression": ("patchtst", {**_PATCHTST, "num_targets": 2}),
    "PatchTSMixerForPrediction": (
        "patchtsmixer",
        {key: value for key, value in _PATCHTST.items() if key not in ("num_attention_heads", "ffn_dim")},
    ),
    "TimeSeriesTransformerForPrediction": ("time_series_transformer", _SERIES),
    "InformerForPrediction": ("informer", _SERIES),
}
"""By class: model type and fields."""
