"""Images, sound and series of numbers for a Hugging Face model, in the shapes that its config says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from runtime.model_errors import UsageError

DEFAULT_IMAGE_SIDE = 224
"""Pixels where neither the config nor `--model-arg image_size` says. Source: the size of ImageNet's training crops."""
DETECTION_IMAGE_SIDE = 800
"""Source: transformers 5.24, DetrImageProcessor, size["shortest_edge"]."""
SEGMENTATION_IMAGE_SIDE = 512
"""Source: transformers 5.24, SegformerImageProcessor, size."""


def image(config: Any, num_samples: int, side: int | None, default_side: int) -> torch.Tensor:
    """Returns noise (num_samples, channels, height, width)."""
    height, width = image_shape(config, side, default_side)
    return torch.randn(num_samples, num_channels(config), height, width)


def image_shape(config: Any, side: int | None, default_side: int = DEFAULT_IMAGE_SIDE) -> tuple[int, int]:
    """Returns the height and width of an image in pixels: as asked, or else as the config or its vision part says."""
    if side is not None:
        return side, side
    found = _first(config, "image_size", "crop_size")
    if isinstance(found, list | tuple) and len(found) == 2:
        return int(found[0]), int(found[1])
    if isinstance(found, int):
        return found, found
    return default_side, default_side


def num_channels(config: Any) -> int:
    """Returns the colours of an image."""
    found = _first(config, "num_channels", "in_channels", "in_chans")
    return found if isinstance(found, int) else 3


def patch_side(config: Any) -> int:
    """Returns the pixels along one side of a patch.

    Raises:
        UsageError: The config has no square patches.
    """
    found = _first(config, "patch_size")
    if isinstance(found, list | tuple) and len(set(found)) == 1:
        found = found[0]
    if not isinstance(found, int):
        raise UsageError(f"the config of model type {config.model_type!r} has no patch_size")
    return found


def video(config: Any, num_samples: int, side: int | None) -> torch.Tensor:
    """Returns noise (num_samples, frames, channels, height, width)."""
    frames = _first(config, "num_frames", "frames_per_clip")
    if not isinstance(frames, int):
        raise UsageError(f"the config of model type {config.model_type!r} does not say how many frames a video has")
    return torch.randn(num_samples, frames, num_channels(config), *image_shape(config, side))


def waveform(config: Any, num_samples: int, num_frames: int) -> torch.Tensor:
    """Returns noise (num_samples, values) that the model's convolutions make `num_frames` frames of.

    Raises:
        UsageError: The config has no such convolutions.
    """
    kernels: Any = getattr(config, "conv_kernel", None)
    strides: Any = getattr(config, "conv_stride", None)
    if config.model_type == "moonshine":
        kernels, strides = (127, 7, 3), (64, 3, 2)  # Source: transformers 5.24, MoonshineEncoder.__init__
    if not kernels or not strides:
        raise UsageError(f"the config of model type {config.model_type!r} does not say how sound becomes frames")
    length = num_frames
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        length = (length - 1) * stride + kernel
    return torch.randn(num_samples, length)


def spectrogram(config: Any, num_samples: int, num_frames: int) -> torch.Tensor:
    """Returns noise in the shape of the model's log-mel features.

    Raises:
        UsageError: The shape of this model type's features is not known.
    """
    kind = config.model_type
    if kind == "whisper":  # two frames for each position: its second convolution has stride 2
        return torch.randn(num_samples, config.num_mel_bins, 2 * config.max_source_positions)
    if kind == "speech_to_text":
        features = config.input_feat_per_channel * config.input_channels
        return torch.randn(num_samples, num_frames * 2**config.num_conv_layers, features)
    if kind == "wav2vec2-bert":
        return torch.randn(num_samples, num_frames, config.feature_projection_input_dim)
    if kind == "audio-spectrogram-transformer":
        return torch.randn(num_samples, config.max_length, config.num_mel_bins)
    if kind == "clap":
        audio = config.audio_config
        frames = audio.spec_size * (audio.spec_size // audio.num_mel_bins)
        return torch.randn(num_samples, 1, frames, audio.num_mel_bins)
    raise UsageError(f"the shape of the features that model type {kind!r} reads is not known; write a callable")


def past_and_future(config: Any, num_samples: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the arguments of a model of time series, each (num_samples, time, channels); one channel has no axis."""
    if config.model_type.startswith("patchts"):
        channels = config.num_input_channels
        yield "past_values", torch.randn(num_samples, config.context_length, channels)
        yield "future_values", torch.randn(num_samples, config.prediction_length, channels)
        return
    past, future = config.context_length + max(config.lags_sequence), config.prediction_length
    channels = () if config.input_size == 1 else (config.input_size,)
    yield "past_values", torch.randn(num_samples, past, *channels)
    yield "past_observed_mask", torch.ones(num_samples, past, *channels)
    yield "past_time_features", torch.randn(num_samples, past, config.num_time_features)
    yield "future_values", torch.randn(num_samples, future, *channels)
    yield "future_time_features", torch.randn(num_samples, future, config.num_time_features)
    if config.num_static_categorical_features:
        yield (
            "static_categorical_features",
            torch.zeros(num_samples, config.num_static_categorical_features, dtype=torch.long),
        )
    if config.num_static_real_features:
        yield "static_real_features", torch.randn(num_samples, config.num_static_real_features)


def num_patches(config: Any, side: int | None) -> int:
    """Returns the patches of an image."""
    patch = patch_side(config)
    return math.prod(length // patch for length in image_shape(config, side))


def _first(config: Any, *names: str) -> Any:
    """Returns the first of these fields in the config or in the parts of it that may be about images."""
    for part in ("", "vision_config", "backbone_config", "encoder"):
        owner = getattr(config, part, None) if part else config
        for name in names:
            found = getattr(owner, name, None)
            if found is not None:
                return found
    return None
