"""Forecasts of time series and decisions, of transformers."""

from __future__ import annotations

import torch

from tests.zoo.entry import Batch, transformer

PATCHES = {"num_input_channels": 3, "context_length": 64, "patch_length": 8, "prediction_length": 8}


def _past_and_future(micro_batch_size: int) -> Batch:
    return {
        "past_values": torch.randn(micro_batch_size, 64, 3),
        "future_values": torch.randn(micro_batch_size, 8, 3),
    }


def _with_times(micro_batch_size: int) -> Batch:
    past, future = 24, 8
    return {
        "past_values": torch.randn(micro_batch_size, past),
        "past_time_features": torch.randn(micro_batch_size, past, 2),
        "past_observed_mask": torch.ones(micro_batch_size, past),
        "future_values": torch.randn(micro_batch_size, future),
        "future_time_features": torch.randn(micro_batch_size, future, 2),
    }


PROBABILISTIC = {
    "prediction_length": 8,
    "context_length": 16,
    "lags_sequence": [1, 2, 4, 8],
    "num_time_features": 2,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}

patchtst = transformer(
    "PatchTSTForPrediction",
    {**PATCHES, "patch_stride": 8, "d_model": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "ffn_dim": 64},
    _past_and_future,
    family="series",
    notes="batch normalization over time",
)
patchtsmixer = transformer(
    "PatchTSMixerForPrediction",
    {**PATCHES, "patch_stride": 8, "d_model": 16, "num_layers": 3},
    _past_and_future,
    family="series",
)
time_series = transformer("TimeSeriesTransformerForPrediction", PROBABILISTIC, _with_times, family="series")
informer = transformer(
    "InformerForPrediction",
    {**PROBABILISTIC, "sampling_factor": 2},
    _with_times,
    family="series",
    notes="samples its queries",
)
autoformer = transformer(
    "AutoformerForPrediction",
    {**PROBABILISTIC, "moving_average": 5, "label_length": 4},
    _with_times,
    family="series",
    notes="attention by Fourier transforms",
)
decision_transformer = transformer(
    "DecisionTransformerModel",
    {"state_dim": 11, "act_dim": 3, "hidden_size": 64, "n_layer": 3, "n_head": 2, "max_ep_len": 64, "vocab_size": 8},
    lambda size: {
        "states": torch.randn(size, 16, 11),
        "actions": torch.randn(size, 16, 3),
        "rewards": torch.randn(size, 16, 1),
        "returns_to_go": torch.randn(size, 16, 1),
        "timesteps": torch.arange(16).expand(size, 16).contiguous(),
        "attention_mask": torch.ones(size, 16, dtype=torch.long),
    },
    family="series",
    has_loss=False,
)
