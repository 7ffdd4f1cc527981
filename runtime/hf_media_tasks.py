"""Batches for tasks on images, videos, sound and series: what each loss reads, as keyword arguments of the model."""

from __future__ import annotations

from typing import Any

import torch

from runtime import hf_media as media
from runtime import hf_text as text
from runtime.hf_example import Example, Wanted
from runtime.hf_text_tasks import class_labels, decoder, language
from runtime.hf_vision_language import KEPT, picture_and_text, takes_image_tokens
from runtime.model_errors import UsageError


def speech_seq2seq(wanted: Wanted) -> Example:
    """Returns sound and the tokens to write for it."""
    return Example({**wanted.sound(), **decoder(wanted)})


def image_text(wanted: Wanted) -> Example:
    """Returns an image and a text."""
    config = wanted.config
    if takes_image_tokens(config) and "input_ids" in wanted.takes and config.model_type != "blip-2":
        batch = picture_and_text(
            config, wanted.takes, wanted.num_samples, wanted.spec, wanted.sequence_length, wanted.image_size
        )
        return Example(batch, tuple(name for name in KEPT if name in batch))
    if config.model_type in ("blip", "git"):  # a picture before the text, or beside it
        return Example({"pixel_values": wanted.image(), **language(wanted).batch})
    if config.model_type == "vision-encoder-decoder":
        return Example({"pixel_values": wanted.image(), **decoder(wanted)})
    raise UsageError(
        f"{wanted.spec}: how a text and a picture go together is not known for the model type {config.model_type!r}; "
        "write a callable that returns (nn.Module, batch) with the batch that its processor makes"
    )


def two_towers(wanted: Wanted) -> Example:
    """Returns what both towers read."""
    batch: dict[str, Any] = {"input_ids": wanted.tokens(), "return_loss": True}
    if "pixel_values" in wanted.takes:
        return Example(batch | {"pixel_values": wanted.image()})
    return Example(batch | wanted.sound())


def ctc(wanted: Wanted) -> Example:
    """Returns sound and the fewer tokens in it."""
    length = max(wanted.length // 4, 1)
    tokens = text.example_tokens(wanted.config, wanted.num_samples, length)
    return Example({**wanted.sound(), "labels": tokens})


def image_classes(wanted: Wanted) -> Example:
    """Returns images with labels."""
    return Example({"pixel_values": wanted.image(), "labels": class_labels(wanted)})


def video_classes(wanted: Wanted) -> Example:
    """Returns videos with labels."""
    name = "pixel_values_videos" if "pixel_values_videos" in wanted.takes else "pixel_values"
    pixels = media.video(wanted.config, wanted.num_samples, wanted.image_size)
    return Example({name: pixels, "labels": class_labels(wanted)})


def detection(wanted: Wanted) -> Example:
    """Returns images with two boxes each."""
    classes = text.spread(0, wanted.num_labels - 1, 2)
    boxes = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.6, 0.6, 0.4, 0.4]])
    labels = [{"class_labels": classes.clone(), "boxes": boxes.clone()} for _ in range(wanted.num_samples)]
    return Example({"pixel_values": wanted.image(media.DETECTION_IMAGE_SIDE), "labels": labels}, ("labels",))


def semantic_segmentation(wanted: Wanted) -> Example:
    """Returns images with a class for each pixel."""
    pixels = wanted.image(media.SEGMENTATION_IMAGE_SIDE)
    return Example({"pixel_values": pixels, "labels": wanted.classes(*pixels.shape[2:])})


def universal_segmentation(wanted: Wanted) -> Example:
    """Returns images with two masks each."""
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


def sound_classes(wanted: Wanted) -> Example:
    """Returns sound with labels."""
    return Example({**wanted.sound(), "labels": class_labels(wanted)})


def frame_classes(wanted: Wanted) -> Example:
    """Returns sound with a class for each frame, one-hot."""
    frames = wanted.classes(wanted.length)
    return Example({**wanted.sound(), "labels": torch.nn.functional.one_hot(frames, wanted.num_labels)})


def masked_image(wanted: Wanted) -> Example:
    """Returns images of which every other patch is masked."""
    pixels = wanted.image()
    count = media.num_patches(wanted.config, wanted.image_size)
    places = (torch.arange(count) % 2 == 0).repeat(wanted.num_samples, 1)
    return Example({"pixel_values": pixels, "bool_masked_pos": places}, ("bool_masked_pos",))


def series_prediction(wanted: Wanted) -> Example:
    """Returns the past and the future of a series."""
    return Example(dict(media.past_and_future(wanted.config, wanted.num_samples)))


def series_classes(wanted: Wanted) -> Example:
    """Returns the past of a series with a class."""
    past = dict(media.past_and_future(wanted.config, wanted.num_samples))["past_values"]
    targets = text.spread(0, wanted.config.num_targets - 1, wanted.num_samples)
    return Example({"past_values": past, "target_values": targets})


def series_regression(wanted: Wanted) -> Example:
    """Returns the past of a series with numbers."""
    past = dict(media.past_and_future(wanted.config, wanted.num_samples))["past_values"]
    return Example({"past_values": past, "target_values": torch.randn(wanted.num_samples, wanted.config.num_targets)})
