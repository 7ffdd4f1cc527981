"""Tokens for a Hugging Face model, from its config: how many, which, and the labels that go with them."""

from __future__ import annotations

from typing import Any

import torch

from runtime.model_errors import UsageError

DEFAULT_SEQUENCE_LENGTH = 1024
"""Tokens per sample when none are given; fewer where the model has fewer positions."""

NUM_CHOICES = 4
"""Answers of a multiple-choice sample. Source: SWAG (arXiv 1808.05326), the data set of transformers' own example."""

_OFFSET_POSITIONS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "esm",
        "ibert",
        "layoutlmv3",
        "lilt",
        "longformer",
        "luke",
        "markuplm",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Model types whose positions begin after the padding token's index, so that their table has as many rows less.
Source: transformers 5.24, create_position_ids_from_input_ids of these models."""
_RELATIVE_POSITIONS = frozenset({"longt5", "mt5", "pop2piano", "switch_transformers", "t5", "udop", "umt5"})
"""Model types whose configs have a number of positions that bounds nothing."""


def checked_length(config: Any, spec: str, sequence_length: int | None) -> int:
    """Returns the tokens per sample: as asked, or as many as the model has positions, 1024 at most.

    Raises:
        UsageError: The model has a table of fewer positions.
    """
    num_positions = _num_positions(config)
    if sequence_length is None:
        return min(DEFAULT_SEQUENCE_LENGTH, num_positions or DEFAULT_SEQUENCE_LENGTH)
    if num_positions is not None and sequence_length > num_positions:
        raise UsageError(f"{spec} has {num_positions} positions, fewer than --sequence-length {sequence_length}")
    return sequence_length


def example_tokens(config: Any, *shape: int) -> torch.Tensor:
    """Returns tokens of this shape that span the vocabulary without the padding token."""
    first, end = 0, vocabulary_size(config)
    padding = getattr(config, "pad_token_id", None)
    if isinstance(padding, int) and 0 <= padding < end:
        first, end = (padding + 1, end) if padding < end // 2 else (first, padding)
    return spread(first, end - 1, *shape)


def vocabulary_size(config: Any) -> int:
    """Returns the number of tokens that the model knows.

    Raises:
        UsageError: The config does not say.
    """
    size = getattr(config.get_text_config(), "vocab_size", None)
    if not isinstance(size, int) or size < 1:
        raise UsageError(f"the config of model type {config.model_type!r} has no vocab_size to draw tokens from")
    return size


def spread(least: int, greatest: int, *shape: int) -> torch.Tensor:
    """Returns whole numbers of this shape, evenly from `least` to `greatest`: data is drawn between the two."""
    count = int(torch.Size(shape).numel())
    return torch.linspace(least, greatest, count, dtype=torch.float64).long().reshape(shape)


def _num_positions(config: Any) -> int | None:
    """Returns the length of the table of learned positions, or None when positions are computed."""
    text = config.get_text_config()
    if config.model_type in _RELATIVE_POSITIONS or getattr(text, "position_embedding_type", "absolute") == "alibi":
        return None
    if getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None):
        return None
    found = [
        getattr(text, name)
        for name in (
            "n_positions",
            "max_position_embeddings",
            "max_target_positions",
            "max_encoder_position_embeddings",
            "max_decoder_position_embeddings",
        )
        if isinstance(getattr(text, name, None), int)
    ]
    if not found:
        return None
    offset = (getattr(text, "pad_token_id", 0) or 0) + 1 if config.model_type in _OFFSET_POSITIONS else 0
    return int(min(found)) - offset
