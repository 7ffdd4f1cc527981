"""An example batch for a Hugging Face model, from its config alone: what its task's loss needs.

All tensors have the samples along their first axis. Generated data replaces each by one of its shape and type, so its
least and greatest whole numbers are those that data may have; `kept` names what must stay as it is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from runtime import hf_media as media
from runtime import hf_text as text
from runtime.hf_tasks import is_causal
from runtime.hf_vision_language import KEPT, picture_and_text, takes_image_tokens
from runtime.model_errors import UsageError


@dataclass(frozen=True, slots=True)
class Example:
    """A batch, and the names of the arguments that generated data must leave as they are."""

    batch: dict[str, Any]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a batch is asked for."""

    config: Any
    spec: str
    takes: frozenset[str]
    """Names of the arguments of the class's forward."""
    num_samples: int
    sequence_length: int | None
    image_size: int | None

    @property
    def length(self) -> int:
        """Tokens per sample."""
        return text.checked_length(self.config, self.spec, self.sequence_length)

    @property
    def num_labels(self) -> int:
        """Classes of a classification."""
        return int(getattr(self.config, "num_labels", 2))

    def tokens(self, *between: int) -> torch.Tensor:
        """Returns tokens (num_samples, *between, length)."""
        return text.example_tokens(self.config, self.num_samples, *between, self.length)

    def image(self, default_side: int = media.DEFAULT_IMAGE_SIDE) -> torch.Tensor:
        """Returns pixels (num_samples, channels, height, width)."""
        return media.image(self.config, self.num_samples, self.image_size, default_side)

    def classes(self, *shape: int) -> torch.Tensor:
        """Returns classes (num_samples, *shape)."""
        return text.spread(0, self.num_labels - 1, self.num_samples, *shape)

    def sound(self) -> dict[str, torch.Tensor]:
        """Returns the waveform or the features that the model hears."""
        if "input_values" in self.takes and self.config.model_type != "audio-spectrogram-transformer":
            return {"input_values": media.waveform(self.config, self.num_samples, self.length)}
        name = "input_values" if "input_values" in self.takes else "input_features"
        return {name: media.spectrogram(self.config, self.num_samples, self.length)}


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


def _language(wanted: Wanted) -> Example:
    tokens = wanted.tokens()
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    if "bbox" in wanted.takes:
        batch["bbox"] = torch.zeros(*tokens.shape, 4, dtype=torch.long)
    return Example(batch)


def _seq2seq(wanted: Wanted) -> Example:
    return Example({"input_ids": wanted.tokens(), **_decoder(wanted)})


def _speech_seq2seq(wanted: Wanted) -> Example:
    return Example({**wanted.sound(), **_decoder(wanted)})


def _decoder(wanted: Wanted) -> dict[str, Any]:
    labels = wanted.tokens()
    config = wanted.config
    if getattr(config, "decoder_start_token_id", None) is None or getattr(config, "pad_token_id", None) is None:
        return {"labels": labels, "decoder_input_ids": labels.clone()}  # the model cannot shift its labels
    return {"labels": labels}


def _image_text(wanted: Wanted) -> Example:
    config = wanted.config
    if takes_image_tokens(config) and "input_ids" in wanted.takes and config.model_type != "blip-2":
        batch = picture_and_text(
            config, wanted.takes, wanted.num_samples, wanted.spec, wanted.sequence_length, wanted.image_size
        )
        return Example(batch, tuple(name for name in KEPT if name in batch))
    if config.model_type in ("blip", "git"):  # a picture before the text, or beside it
        return Example({"pixel_values": wanted.image(), **_language(wanted).batch})
    if config.model_type == "vision-encoder-decoder":
        return Example({"pixel_values": wanted.image(), **_decoder(wanted)})
    raise UsageError(
        f"{wanted.spec}: how a text and a picture go together is not known for the model type {config.model_type!r}; "
        "write a callable that returns (nn.Module, batch) with the batch that its processor makes"
    )


def _two_towers(wanted: Wanted) -> Example:
    batch: dict[str, Any] = {"input_ids": wanted.tokens(), "return_loss": True}
    if "pixel_values" in wanted.takes:
        return Example(batch | {"pixel_values": wanted.image()})
    return Example(batch | wanted.sound())


def _ctc(wanted: Wanted) -> Example:
    length = max(wanted.length // 4, 1)
    tokens = text.example_tokens(wanted.config, wanted.num_samples, length)
    return Example({**wanted.sound(), "labels": tokens})


def _image_classes(wanted: Wanted) -> Example:
    return Example({"pixel_values": wanted.image(), "labels": _class_labels(wanted)})


def _video_classes(wanted: Wanted) -> Example:
    name = "pixel_values_videos" if "pixel_values_videos" in wanted.takes else "pixel_values"
    pixels = media.video(wanted.config, wanted.num_samples, wanted.image_size)
    return Example({name: pixels, "labels": _class_labels(wanted)})


def _detection(wanted: Wanted) -> Example:
    classes = text.spread(0, wanted.num_labels - 1, 2)
    boxes = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.6, 0.6, 0.4, 0.4]])
    labels = [{"class_labels": classes.clone(), "boxes": boxes.clone()} for _ in range(wanted.num_samples)]
    return Example({"pixel_values": wanted.image(media.DETECTION_IMAGE_SIDE), "labels": labels}, ("labels",))


def _semantic_segmentation(wanted: Wanted) -> Example:
    pixels = wanted.image(media.SEGMENTATION_IMAGE_SIDE)
    return Example({"pixel_values": pixels, "labels": wanted.classes(*pixels.shape[2:])})


def _universal_segmentation(wanted: Wanted) -> Example:
    pixels = wanted.image(media.SEGMENTATION_IMAGE_SIDE)
    masks = torch.zeros(2, *pixels.shape[2:])
    masks[0, : pixels.shape[2] // 2], masks[1, pixels.shape[2] // 2 :] = 1, 1
    classes = text.spread(0, wanted.num_labels - 1, 2)
    batch = {
        "pixel_values": pixels,
        "mask_labels": [masks.clone() for _ in range(wanted.num_samples)],
        "class_labels": [classes.clone() for _ in range(wanted.num_samples)],
    }
    return Example(batch, ("mask_labels", "class_labels"))


def _sound_classes(wanted: Wanted) -> Example:
    return Example({**wanted.sound(), "labels": _class_labels(wanted)})


def _frame_classes(wanted: Wanted) -> Example:
    frames = wanted.classes(wanted.length)
    return Example({**wanted.sound(), "labels": torch.nn.functional.one_hot(frames, wanted.num_labels)})


def _series_prediction(wanted: Wanted) -> Example:
    return Example(dict(media.past_and_future(wanted.config, wanted.num_samples)))


def _series_classes(wanted: Wanted) -> Example:
    past = dict(media.past_and_future(wanted.config, wanted.num_samples))["past_values"]
    targets = text.spread(0, wanted.config.num_targets - 1, wanted.num_samples)
    return Example({"past_values": past, "target_values": targets})


def _series_regression(wanted: Wanted) -> Example:
    past = dict(media.past_and_future(wanted.config, wanted.num_samples))["past_values"]
    return Example({"past_values": past, "target_values": torch.randn(wanted.num_samples, wanted.config.num_targets)})


def _class_labels(wanted: Wanted) -> torch.Tensor:
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


def _sequence_classes(wanted: Wanted) -> Example:
    config, tokens = wanted.config, wanted.tokens()
    if getattr(config, "is_encoder_decoder", False) and isinstance(getattr(config, "eos_token_id", None), int):
        # The class is read from the last end of sequence, of which every sample must have as many.
        plain = (config.eos_token_id + 1) % text.vocabulary_size(config)
        tokens = torch.where(tokens == config.eos_token_id, plain, tokens)
        tokens[:, -1] = config.eos_token_id
        return Example({"input_ids": tokens, "labels": _class_labels(wanted)}, ("input_ids",))
    if getattr(config, "pad_token_id", None) is None and is_causal(config.model_type):
        raise UsageError(
            f"{wanted.spec}: the class is read from the last token that is no padding, and the config has no "
            "pad_token_id; give --model-arg pad_token_id=0, or another token"
        )
    return Example({"input_ids": tokens, "labels": _class_labels(wanted)})


def _token_classes(wanted: Wanted) -> Example:
    return Example({"input_ids": wanted.tokens(), "labels": wanted.classes(wanted.length)})


def _spans(wanted: Wanted) -> Example:
    batch = {"input_ids": wanted.tokens()}
    for name in ("start_positions", "end_positions"):
        batch[name] = text.spread(0, wanted.length - 1, wanted.num_samples)
    if "bbox" in wanted.takes:
        batch["bbox"] = torch.zeros(*batch["input_ids"].shape, 4, dtype=torch.long)
    return Example(batch)


def _choices(wanted: Wanted) -> Example:
    labels = text.spread(0, text.NUM_CHOICES - 1, wanted.num_samples)
    return Example({"input_ids": wanted.tokens(text.NUM_CHOICES), "labels": labels})


def _next_sentence(wanted: Wanted) -> Example:
    return Example({"input_ids": wanted.tokens(), "labels": text.spread(0, 1, wanted.num_samples)})


def _masked_image(wanted: Wanted) -> Example:
    pixels = wanted.image()
    count = media.num_patches(wanted.config, wanted.image_size)
    places = (torch.arange(count) % 2 == 0).repeat(wanted.num_samples, 1)
    return Example({"pixel_values": pixels, "bool_masked_pos": places}, ("bool_masked_pos",))


def _pretraining(wanted: Wanted) -> Example:
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
    "image-text-to-text": _image_text,
    "seq2seq-lm": _seq2seq,
    "speech-seq2seq": _speech_seq2seq,
    "masked-lm": _language,
    "causal-lm": _language,
    "two-tower": _two_towers,
    "ctc": _ctc,
    "image-classification": _image_classes,
    "video-classification": _video_classes,
    "object-detection": _detection,
    "semantic-segmentation": _semantic_segmentation,
    "universal-segmentation": _universal_segmentation,
    "audio-classification": _sound_classes,
    "time-series-prediction": _series_prediction,
    "time-series-classification": _series_classes,
    "time-series-regression": _series_regression,
    "sequence-classification": _sequence_classes,
    "token-classification": _token_classes,
    "question-answering": _spans,
    "document-question-answering": _spans,
    "multiple-choice": _choices,
    "next-sentence": _next_sentence,
    "masked-image": _masked_image,
    "audio-frame-classification": _frame_classes,
    "audio-xvector": _sound_classes,
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
