"""Builds a Hugging Face model from its config, with a batch for its task: no weights and no processor are needed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from runtime.hf_config import ReadConfig, read_config
from runtime.hf_example import Example, Wanted
from runtime.hf_inputs import example_inputs, has_length
from runtime.hf_tasks import model_class
from runtime.hf_text import checked_length


def build_from_config(
    path: Path, arguments: Mapping[str, str], micro_batch_size: int, sequence_length: int | None
) -> tuple[nn.Module, dict[str, Any]]:
    """Returns the model of a config in fp32 and a batch such that `model(**batch)` has a loss.

    Args:
        path: `config.json` or its folder.
        arguments: Fields of the config to set; `architecture` names the class, `image_size` the side of an image where
            the config has no field of that name.
        micro_batch_size: Samples in the batch.
        sequence_length: Tokens per sample; None: 1024, or as many as there are positions.

    Raises:
        UsageError: The config cannot be read, its class has no loss, or a batch for it is not known.
    """
    read = read_config(path, arguments)
    found, task = model_class(read.config, read.architecture)
    example = _example(read, found, task.name, micro_batch_size, sequence_length)
    if hasattr(read.config, "use_cache"):
        read.config.use_cache = False
    return found._from_config(read.config, dtype=torch.float32), example.batch


def config_sequence_length(path: Path, arguments: Mapping[str, str], sequence_length: int | None) -> int | None:
    """Returns the tokens per sample of `build_from_config`; None where the task has none.

    Raises:
        UsageError: As `build_from_config`.
    """
    read = read_config(path, arguments)
    found, task = model_class(read.config, read.architecture)
    if not has_length(task.name, _takes(found)):
        return None
    return checked_length(read.config, read.spec, sequence_length)


def kept_inputs_of_config(path: Path, arguments: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the arguments that generated data leaves as the example has them.

    Raises:
        UsageError: As `build_from_config`.
    """
    read = read_config(path, arguments)
    found, task = model_class(read.config, read.architecture)
    return _example(read, found, task.name, 1, None).kept


def _example(read: ReadConfig, found: Any, task: str, num_samples: int, sequence_length: int | None) -> Example:
    wanted = Wanted(read.config, read.spec, _takes(found), num_samples, sequence_length, read.image_size)
    return example_inputs(task, wanted)


def _takes(found: Any) -> frozenset[str]:
    return frozenset(inspect.signature(found.forward).parameters)
