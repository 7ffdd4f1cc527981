"""An example batch for a Hugging Face model, from its config alone: what its task's loss needs.

All tensors have the samples along their first axis. Generated data replaces each by one of its shape and type, so its
least and greatest whole numbers are those that data may have; `kept` names what must stay as it is here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from runtime import hf_media as media
from runtime import hf_media_tasks, hf_text_tasks
from runtime import hf_text as text
from runtime.hf_example import Example, Wanted
from runtime.model_errors import UsageError


def example_inputs(task: str, wanted: Wanted) -> Example:
    """Returns a batch for a task of `hf_tasks.TASKS`.

    Raises:
        UsageError: The config does not say what a batch looks like, or the length does not fit it.
    """
    if wanted.sequence_length is not None and not has_length(task, wanted.takes):
        raise UsageError(f"{wanted.spec}: {task} has no tokens; leave --sequence-length out")
    example = _MAKERS[task](wanted)
    unknown = [name for name in example.batch if name not in wanted.takes]
    if unknown:
        raise UsageError(
            f"{wanted.spec}: {task} is not known for the model type {wanted.config.model_type!r}, which takes no "
            f"{', '.join(unknown)}; write a callable that returns (nn.Module, batch)"
        )
    return example


def has_length(task: str, takes: frozenset[str]) -> bool:
    """Whether a sample of the task has tokens, or frames of sound, whose number can be chosen."""
    is_image_alone = "pixel_values" in takes and not takes & {"input_ids", "decoder_input_ids"}
    return task not in _WITHOUT_LENGTH and not is_image_alone


def _pretraining(wanted: Wanted) -> Example:
    """Returns what the model's own pretraining needs: two losses of BERT's kind, replaced tokens, or masked images."""
    takes, kind = wanted.takes, wanted.config.model_type
    if "input_ids" not in takes and "pixel_values" in takes:
        if kind != "videomae":
            return Example({"pixel_values": wanted.image()})
        pixels = media.video(wanted.config, wanted.num_samples, wanted.image_size)
        tubes = wanted.config.num_frames // wanted.config.tubelet_size
        count = tubes * media.num_patches(wanted.config, wanted.image_size)
        places = (torch.arange(count) % 10 != 0).repeat(wanted.num_samples, 1)
        return Example({"pixel_values": pixels, "bool_masked_pos": places}, ("bool_masked_pos",))
    tokens = wanted.tokens()
    if kind in ("electra", "funnel"):  # which tokens were replaced
        return Example({"input_ids": tokens, "labels": text.spread(0, 1, *tokens.shape)})
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    for name in ("next_sentence_label", "sentence_order_label"):
        if name in takes:
            batch[name] = text.spread(0, 1, wanted.num_samples)
    return Example(batch)


_MAKERS: dict[str, Callable[[Wanted], Example]] = {
    "image-text-to-text": hf_media_tasks.image_text,
    "seq2seq-lm": hf_text_tasks.seq2seq,
    "speech-seq2seq": hf_media_tasks.speech_seq2seq,
    "masked-lm": hf_text_tasks.language,
    "causal-lm": hf_text_tasks.language,
    "two-tower": hf_media_tasks.two_towers,
    "ctc": hf_media_tasks.ctc,
    "image-classification": hf_media_tasks.image_classes,
    "video-classification": hf_media_tasks.video_classes,
    "object-detection": hf_media_tasks.detection,
    "semantic-segmentation": hf_media_tasks.semantic_segmentation,
    "universal-segmentation": hf_media_tasks.universal_segmentation,
    "audio-classification": hf_media_tasks.sound_classes,
    "time-series-prediction": hf_media_tasks.series_prediction,
    "time-series-classification": hf_media_tasks.series_classes,
    "time-series-regression": hf_media_tasks.series_regression,
    "sequence-classification": hf_text_tasks.sequence_classes,
    "token-classification": hf_text_tasks.token_classes,
    "question-answering": hf_text_tasks.spans,
    "document-question-answering": hf_text_tasks.spans,
    "multiple-choice": hf_text_tasks.choices,
    "next-sentence": hf_text_tasks.next_sentence,
    "masked-image": hf_media_tasks.masked_image,
    "audio-frame-classification": hf_media_tasks.frame_classes,
    "audio-xvector": hf_media_tasks.sound_classes,
    "pretraining": _pretraining,
}
_WITHOUT_LENGTH = frozenset(
    {
        "image-classification",
        "video-classification",
        "object-detection",
        "semantic-segmentation",
        "universal-segmentation",
        "time-series-prediction",
        "time-series-classification",
        "time-series-regression",
        "masked-image",
    }
)
