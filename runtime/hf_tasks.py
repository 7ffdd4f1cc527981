"""What a Hugging Face model can be trained for, and which of its classes has the loss of each task.

Which class has which task is transformers' own knowledge (Source: transformers 5.24,
models/auto/modeling_auto.py, MODEL_FOR_*_MAPPING_NAMES); the order and the classes that it has no mapping for are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.model_errors import UsageError


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of training: a loss and the inputs that it needs."""

    name: str
    mapping: str = ""
    """The middle of the name of transformers' mapping from model type to class; "" where there is none."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Class by model type, of those that transformers has no mapping for."""


TASKS = (
    Task("image-text-to-text", "IMAGE_TEXT_TO_TEXT"),
    Task("seq2seq-lm", "SEQ_TO_SEQ_CAUSAL_LM"),
    Task("speech-seq2seq", "SPEECH_SEQ_2_SEQ"),
    Task("masked-lm", "MASKED_LM"),
    Task("causal-lm", "CAUSAL_LM"),
    Task("two-tower", "ZERO_SHOT_IMAGE_CLASSIFICATION", {"clap": "ClapModel"}),
    Task("ctc", "CTC"),
    Task("image-classification", "IMAGE_CLASSIFICATION"),
    Task("video-classification", "VIDEO_CLASSIFICATION"),
    Task("object-detection", "OBJECT_DETECTION"),
    Task("semantic-segmentation", "SEMANTIC_SEGMENTATION"),
    Task("universal-segmentation", "UNIVERSAL_SEGMENTATION"),
    Task("audio-classification", "AUDIO_CLASSIFICATION"),
    Task(
        "time-series-prediction",
        own={
            "patchtst": "PatchTSTForPrediction",
            "patchtsmixer": "PatchTSMixerForPrediction",
            "time_series_transformer": "TimeSeriesTransformerForPrediction",
            "informer": "InformerForPrediction",
            "autoformer": "AutoformerForPrediction",
        },
    ),
    Task("time-series-classification", "TIME_SERIES_CLASSIFICATION"),
    Task("time-series-regression", "TIME_SERIES_REGRESSION"),
    Task("sequence-classification", "SEQUENCE_CLASSIFICATION"),
    Task("token-classification", "TOKEN_CLASSIFICATION"),
    Task("question-answering", "QUESTION_ANSWERING"),
    Task("document-question-answering", "DOCUMENT_QUESTION_ANSWERING"),
    Task("multiple-choice", "MULTIPLE_CHOICE"),
    Task("next-sentence", "NEXT_SENTENCE_PREDICTION"),
    Task("masked-image", "MASKED_IMAGE_MODELING"),
    Task("audio-frame-classification", "AUDIO_FRAME_CLASSIFICATION"),
    Task("audio-xvector", "AUDIO_XVECTOR"),
    Task("pretraining", "PRETRAINING"),
)
"""In the order in which a model type without `architectures` is given one."""


def model_class(config: Any, architecture: str | None) -> tuple[Any, Task]:
    """Returns the class to train, and its task.

    It is `architecture` where that is given, else the first of the config's own `architectures`, else that of the first
    task in `TASKS` that the model type has.

    Raises:
        UsageError: transformers has no such class for this model type, or the class has no loss; the text names the
            classes of the model type that have one.
    """
    import transformers

    known = dict(classes_of(config.model_type))
    declared = list(getattr(config, "architectures", None) or [])
    names = [architecture] if architecture else declared[:1] or list(known)[:1]
    if not names:
        raise UsageError(
            f"transformers has no class with a loss for the model type {config.model_type!r}; write a callable that "
            "returns (nn.Module, batch) and computes one"
        )
    name = names[0]
    remedy = f"give --model-arg architecture=NAME, one of {', '.join(known)}" if known else "write a callable instead"
    found = getattr(transformers, name, None)
    if found is None or getattr(found, "config_class", None) is None:
        raise UsageError(f"transformers {transformers.__version__} has no model class {name!r}: {remedy}")
    if not isinstance(config, found.config_class):
        raise UsageError(f"{name} is no class for the model type {config.model_type!r}: {remedy}")
    task = known.get(name) or next((task for task in TASKS if name in _names_in(task)), None)
    if task is None:
        raise UsageError(f"{name} computes no loss that is known here: {remedy}")
    return found, task


def classes_of(model_type: str) -> Iterator[tuple[str, Task]]:
    """Yields the classes of a model type with their tasks, each class once, in the order of `TASKS`."""
    seen: set[str] = set()
    for task in TASKS:
        for name in _names(_mapping(task).get(model_type)):
            if name not in seen:
                seen.add(name)
                yield name, task


def is_causal(model_type: str) -> bool:
    """Whether the model type is one of decoders, whose tokens do not see those after them."""
    tasks = [task.name for _, task in classes_of(model_type)]
    return "causal-lm" in tasks and "masked-lm" not in tasks


def _mapping(task: Task) -> Mapping[str, Any]:
    from transformers.models.auto import modeling_auto

    theirs = getattr(modeling_auto, f"MODEL_FOR_{task.mapping}_MAPPING_NAMES", {}) if task.mapping else {}
    return {**theirs, **task.own}


def _names_in(task: Task) -> list[str]:
    return [name for entry in _mapping(task).values() for name in _names(entry)]


def _names(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)
