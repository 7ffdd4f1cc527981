"""Batches of a picture and a text for the models that put an image's features in the place of its tokens."""

from __future__ import annotations

from typing import Any

import torch

from runtime.hf_media import DEFAULT_IMAGE_SIDE, image, image_shape, num_channels, num_patches, patch_side
from runtime.hf_text import checked_length, example_tokens, vocabulary_size
from runtime.model_errors import UsageError

KEPT = ("input_ids", "labels", "image_grid_thw", "mm_token_type_ids", "token_type_ids", "pixel_attention_mask")
"""What generated data must not replace: where the image is among the tokens, and how large it is."""

_GRIDS = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe"})
"""Model types that read an image as a row of flattened patches and the grid that they came from."""
_SEVERAL_IMAGES = frozenset({"idefics2", "idefics3", "smolvlm"})
"""Model types whose pixel values have an axis of images after that of samples."""


def takes_image_tokens(config: Any) -> bool:
    """Whether an image's features stand in the place of special tokens in this model type."""
    return _image_token(config) is not None


def picture_and_text(
    config: Any, takes: frozenset[str], num_samples: int, spec: str, sequence_length: int | None, side: int | None
) -> dict[str, torch.Tensor]:
    """Returns one image and its text for each sample, with labels.

    Raises:
        UsageError: The tokens of the image do not fit the sequence, or their number is not known for this model type.
    """
    length = checked_length(config, spec, sequence_length)
    grid = _grid(config, side) if config.model_type in _GRIDS else None
    count = _num_image_tokens(config, side) if grid is None else grid[0] * grid[1] // _merge(config) ** 2
    first = 2
    if first + count + 1 > length:
        raise UsageError(
            f"{spec}: an image takes {count} tokens, so --sequence-length must be {first + count + 1} or more"
        )
    tokens = _without(config, example_tokens(config, num_samples, length))
    start = getattr(config, "vision_start_token_id", None)
    if isinstance(start, int):
        tokens[:, first - 1] = start
    image_token = _image_token(config)
    assert image_token is not None  # the caller asked `takes_image_tokens`
    tokens[:, first : first + count] = image_token
    batch = {"input_ids": tokens, "labels": tokens.clone(), **_pixels(config, num_samples, side, grid)}
    is_image = torch.zeros_like(tokens)
    is_image[:, first : first + count] = 1
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in takes:
            # PaliGemma's token types tell the prefix, which the labels do not reach, from the rest.
            batch[name] = is_image if config.model_type != "paligemma" else 1 - is_image
    return batch


def _pixels(config: Any, num_samples: int, side: int | None, grid: tuple[int, int] | None) -> dict[str, torch.Tensor]:
    if grid is not None:
        vision = config.vision_config
        values = num_channels(config) * vision.temporal_patch_size * patch_side(config) ** 2
        return {
            "pixel_values": torch.randn(num_samples, grid[0] * grid[1], values),
            "image_grid_thw": torch.tensor([[1, *grid]]).repeat(num_samples, 1),
        }
    pixels = image(config, num_samples, side, DEFAULT_IMAGE_SIDE)
    return {"pixel_values": pixels.unsqueeze(1) if config.model_type in _SEVERAL_IMAGES else pixels}


def _grid(config: Any, side: int | None) -> tuple[int, int]:
    """Returns how many patches high and wide an image is: whole groups of those that are merged into one token."""
    unit = patch_side(config) * _merge(config)
    height, width = image_shape(config, side)
    return max(height // unit, 1) * _merge(config), max(width // unit, 1) * _merge(config)


def _merge(config: Any) -> int:
    return int(config.vision_config.spatial_merge_size)


def _num_image_tokens(config: Any, side: int | None) -> int:
    """Returns the tokens that stand for one image.

    Source: transformers 5.24, get_image_features and the multi-modal projector of each model type.
    """
    kind = config.model_type
    if kind in ("llava", "vipllava"):
        has_class_token = getattr(config, "vision_feature_select_strategy", "default") == "full"
        return num_patches(config, side) + int(has_class_token)
    if kind == "paligemma":
        return num_patches(config, side)
    if kind == "gemma3":
        return int(config.mm_tokens_per_image)
    if kind == "idefics2":
        return int(config.perceiver_config.resampler_n_latents)
    if kind in ("idefics3", "smolvlm"):
        return num_patches(config, side) // int(config.scale_factor) ** 2
    if kind == "internvl":
        return int(num_patches(config, side) * float(config.downsample_ratio) ** 2)
    raise UsageError(
        f"how many tokens stand for an image is not known for the model type {kind!r}; write a callable that returns "
        "(nn.Module, batch) with the batch that its processor makes"
    )


def _image_token(config: Any) -> int | None:
    for name in ("image_token_id", "image_token_index"):
        token = getattr(config, name, None)
        if isinstance(token, int):
            return token
    return None


def _without(config: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the tokens with a plain one in the place of each that has a meaning of its own."""
    special = sorted(
        {
            value
            for name, value in config.to_dict().items()
            if isinstance(value, int) and name.endswith(("token_id", "token_index"))
        }
    )
    plain = next(token for token in range(vocabulary_size(config)) if token not in special)
    for token in special:
        tokens = torch.where(tokens == token, plain, tokens)
    return tokens
