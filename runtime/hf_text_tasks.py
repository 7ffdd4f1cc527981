"""Batches for tasks on text: what each loss reads, as the keyword arguments of the model."""

from __future__ import annotations

from typing import Any

import torch

from runtime import hf_text as text
from runtime.hf_example import Example, Wanted
from runtime.hf_tasks import is_causal
from runtime.model_errors import UsageError


def language(wanted: Wanted) -> Example:
    """Returns tokens that are their own labels."""
    tokens = wanted.tokens()
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    if "bbox" in wanted.takes:
        batch["bbox"] = torch.zeros(*tokens.shape, 4, dtype=torch.long)
    return Example(batch)


def seq2seq(wanted: Wanted) -> Example:
    """Returns tokens to read and tokens to write."""
    return Example({"input_ids": wanted.tokens(), **decoder(wanted)})


def class_labels(wanted: Wanted) -> torch.Tensor:
    """Labels of whole samples: classes, or numbers where the config's problem is a regression or of several classes.

    Source: transformers 5.24, ForSequenceClassification models and loss/loss_utils.py, ForSequenceClassificationLoss.
    """
    problem = getattr(wanted.config, "problem_type", None)
    if problem == "multi_label_classification":
        return torch.rand(wanted.num_samples, wanted.num_labels)
    if problem == "regression" or (problem is None and wanted.num_labels == 1):
        shape = (wanted.num_samples,) if wanted.num_labels == 1 else (wanted.num_samples, wanted.num_labels)
        return torch.randn(shape)
    return wanted.classes()


def sequence_classes(wanted: Wanted) -> Example:
    """Returns tokens with a label for each sample."""
    config, tokens = wanted.config, wanted.tokens()
    if getattr(config, "is_encoder_decoder", False) and isinstance(getattr(config, "eos_token_id", None), int):
        # The class is read from the last end of sequence, of which every sample must have as many.
        plain = (config.eos_token_id + 1) % text.vocabulary_size(config)
        tokens = torch.where(tokens == config.eos_token_id, plain, tokens)
        tokens[:, -1] = config.eos_token_id
        return Example({"input_ids": tokens, "labels": class_labels(wanted)}, ("input_ids",))
    if getattr(config, "pad_token_id", None) is None and is_causal(config.model_type):
        raise UsageError(
            f"{wanted.spec}: the class is read from the last token that is no padding, and the config has no "
            "pad_token_id; give --model-arg pad_token_id=0, or another token"
        )
    return Example({"input_ids": tokens, "labels": class_labels(wanted)})


def token_classes(wanted: Wanted) -> Example:
    """Returns tokens with a label for each."""
    return Example({"input_ids": wanted.tokens(), "labels": wanted.classes(wanted.length)})


def spans(wanted: Wanted) -> Example:
    """Returns tokens with the beginning and end of an answer."""
    batch = {"input_ids": wanted.tokens()}
    for name in ("start_positions", "end_positions"):
        batch[name] = text.spread(0, wanted.length - 1, wanted.num_samples)
    if "bbox" in wanted.takes:
        batch["bbox"] = torch.zeros(*batch["input_ids"].shape, 4, dtype=torch.long)
    return Example(batch)


def choices(wanted: Wanted) -> Example:
    """Returns several texts for each sample, and which is right."""
    labels = text.spread(0, text.NUM_CHOICES - 1, wanted.num_samples)
    return Example({"input_ids": wanted.tokens(text.NUM_CHOICES), "labels": labels})


def next_sentence(wanted: Wanted) -> Example:
    """Returns tokens with whether the second sentence follows the first."""
    return Example({"input_ids": wanted.tokens(), "labels": text.spread(0, 1, wanted.num_samples)})


def decoder(wanted: Wanted) -> dict[str, Any]:
    """Returns what a decoder is to write: labels, and its input where the model cannot shift them itself."""
    labels = wanted.tokens()
    config = wanted.config
    if getattr(config, "decoder_start_token_id", None) is None or getattr(config, "pad_token_id", None) is None:
        return {"labels": labels, "decoder_input_ids": labels.clone()}  # the model cannot shift its labels
    return {"labels": labels}
