"""Reads a Hugging Face `config.json`, with the model arguments set in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.model_arguments import looks_like
from runtime.model_errors import UsageError

OWN_ARGUMENTS = ("architecture", "image_size")
"""Model arguments that are no fields of every config: the class to train, and the side of an image in pixels."""


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """A config, and what was asked beside it."""

    config: Any
    spec: str
    """Its file, for messages."""
    architecture: str | None
    image_size: int | None


def read_config(path: Path, arguments: Mapping[str, str]) -> ReadConfig:
    """Returns the config in a file or folder.

    Args:
        path: `config.json` or its folder.
        arguments: Fields to set, and those of `OWN_ARGUMENTS`.

    Raises:
        UsageError: transformers is not there or refuses the config, or an argument is no field of it.
    """
    try:
        import transformers
    except ImportError as error:
        raise UsageError("a Hugging Face config needs transformers: pip install 'shardplan[hf]'") from error
    file = path / "config.json" if path.is_dir() else path
    fields = _fields(file)
    model_type = fields.pop("model_type")
    try:
        known = transformers.AutoConfig.for_model(model_type).to_dict()
    except ValueError as error:
        raise UsageError(
            f"{file}: transformers {transformers.__version__} has no model type {model_type!r}; write a callable that "
            "builds the model"
        ) from error
    if fields.get("quantization_config"):
        raise UsageError(
            f"{file} has a quantization_config, and a model that is made without weights is not quantized: delete the "
            "field to plan for training its full weights"
        )
    given = {key: looks_like(text) for key, text in arguments.items()}
    own = {key: given.pop(key) for key in OWN_ARGUMENTS if key in given and key not in fields and key not in known}
    for key, value in given.items():
        _set(fields, known, key, value, file)
    try:
        config = transformers.AutoConfig.for_model(model_type, **fields)
    except Exception as error:  # its validators have errors of their own
        raise UsageError(f"{file}: transformers refuses the config: {' '.join(str(error).split())}") from error
    return ReadConfig(config, str(file), own.get("architecture"), own.get("image_size"))


def _set(fields: dict[str, Any], known: dict[str, Any], key: str, value: Any, file: Path) -> None:
    """Sets a field, or one of a part of the config: `text_config.num_hidden_layers`."""
    *parts, name = key.split(".")
    for part in parts:
        known = known.get(part) or {}
        fields = fields.setdefault(part, {}) if isinstance(fields.get(part, known), dict) else {}
    if name not in fields and name not in known:
        raise UsageError(f"{file} has no field {key!r} to set by --model-arg")
    fields[name] = value


def _fields(file: Path) -> dict[str, Any]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise UsageError(f"{file} has no model_type, so it is not the config of a Hugging Face model")
    return fields
