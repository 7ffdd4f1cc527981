"""Builds the user's model and an example batch, for the tracer and for the launcher alike.

A model is named in one of three ways: `FILE.py:CALLABLE`, `package.module:CALLABLE`, or the path of a Hugging Face
`config.json`. A callable gets `micro_batch_size`, `sequence_length` (when it was given and is accepted) and the model
arguments, and returns `(nn.Module, batch)`. This file imports nothing of the project, so that a launcher can carry it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

DEFAULT_SEQUENCE_LENGTH = 1024
"""Tokens per sample for a Hugging Face model when none is given; fewer where the model has fewer positions."""


class UsageError(Exception):
    """The model's name or arguments are wrong: nothing of the user's model has run yet."""


def build(
    spec: str,
    kind: Literal["file", "module", "hf_config"],
    arguments: Mapping[str, str],
    micro_batch_size: int,
    sequence_length: int | None,
) -> tuple[nn.Module, dict[str, Any]]:
    """Returns the module in fp32 as its maker leaves it, and a batch such that `model(**batch)` gives the loss.

    Args:
        spec: `FILE.py:CALLABLE`, `package.module:CALLABLE` or the path of a Hugging Face config.json or its folder.
        kind: Which of the three `spec` is.
        arguments: The model arguments as text; `typed_arguments` says how they are read.
        micro_batch_size: Samples in the batch: the first axis of its tensors.
        sequence_length: Tokens per sample; None leaves the callable its own default.

    Raises:
        UsageError: The file, callable or config cannot be read, or an argument does not exist.
        TypeError: The callable returned something other than a module and a dictionary.
    """
    if kind == "hf_config":
        return _build_from_config(Path(spec), arguments, micro_batch_size, sequence_length)
    factory = load_callable(spec, kind)
    keywords = {"micro_batch_size": micro_batch_size, **typed_arguments(factory, arguments)}
    if sequence_length is not None:
        if not _accepts(factory, "sequence_length"):
            raise UsageError(f"{spec} takes no sequence_length; leave --sequence-length out, or add the parameter")
        keywords["sequence_length"] = sequence_length
    _check_complete(spec, factory, keywords)
    made = factory(**keywords)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise TypeError(f"{spec} must return (nn.Module, batch), not {_described(made)}")
    model, batch = made
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"{spec} must return its batch as a dict of the model's keyword arguments, not {_described(batch)}"
        )
    return model, dict(batch)


def load_callable(spec: str, kind: Literal["file", "module", "hf_config"]) -> Callable[..., Any]:
    """Returns the callable that `spec` names; the folder of a file is appended to `sys.path`.

    Raises:
        UsageError: There is no such file, module or callable.
    """
    place, _, name = spec.rpartition(":")
    try:
        module = _import_file(Path(place)) if kind == "file" else _import_module(place)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        raise UsageError(f"cannot load {place}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(f"{place} has no callable {name!r}")
    return found  # type: ignore[no-any-return]


def known_sequence_length(
    spec: str, kind: Literal["file", "module", "hf_config"], arguments: Mapping[str, str], sequence_length: int | None
) -> int | None:
    """Returns the tokens per sample that `build` uses: the given ones, or else the model's default if it has one.

    Raises:
        UsageError: As `build`.
    """
    if sequence_length is not None:
        return sequence_length
    if kind == "hf_config":
        return _sequence_length(_read_config(Path(spec), arguments), spec, None)
    parameter = inspect.signature(load_callable(spec, kind)).parameters.get("sequence_length")
    default = None if parameter is None else parameter.default
    return default if isinstance(default, int) else None


def typed_arguments(factory: Callable[..., Any], arguments: Mapping[str, str]) -> dict[str, Any]:
    """Returns the model arguments as values for `factory`.

    A parameter annotated `int`, `float`, `bool` or `str` decides the type. Without such an annotation the text's look
    decides: `true` and `false` are booleans, `12` is an int, `1e-3` a float, `none` is None, all else stays text.

    Raises:
        UsageError: `factory` has no parameter of that name, or the text is not of the parameter's type.
    """
    values: dict[str, Any] = {}
    for key, text in arguments.items():
        if key in _GIVEN:
            raise UsageError(f"{key} is no argument of the model's own: give it by --{key.replace('_', '-')}")
        if not _accepts(factory, key):
            known = ", ".join(name for name in inspect.signature(factory).parameters if name not in _GIVEN)
            raise UsageError(f"the model takes no argument {key!r}; it takes: {known or 'none'}")
        values[key] = _value(key, text, inspect.signature(factory).parameters.get(key))
    return values


def loss_of(output: Any) -> torch.Tensor:
    """Returns the loss in what `model(**batch)` gave: a tensor, an object with `.loss`, or a dict with "loss".

    Raises:
        TypeError: There is none, it is not a scalar, or it needs no gradient.
    """
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        loss = output
    if not isinstance(loss, torch.Tensor):
        raise TypeError(f"model(**batch) must return a loss or an object with .loss, not {_described(output)}")
    if loss.numel() != 1:
        raise TypeError(f"the loss must be one number, but its shape is {tuple(loss.shape)}; reduce it with .mean()")
    if not loss.requires_grad:
        raise TypeError("the loss needs no gradient: no trainable parameter reaches it")
    return loss


def cast_floats(batch: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Returns the batch with its floating-point tensors in `dtype`, as a model with weights of that type needs them."""
    return {
        key: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for key, value in batch.items()
    }


_GIVEN = ("micro_batch_size", "sequence_length")


def _accepts(factory: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(factory).parameters
    return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _check_complete(spec: str, factory: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters
    if not _accepts(factory, "micro_batch_size"):
        raise UsageError(f"{spec} takes no micro_batch_size; add the parameter, and make the batch of so many samples")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in keywords
    ]
    if missing:
        remedies = ["--sequence-length S" if name in _GIVEN else f"--model-arg {name}=VALUE" for name in missing]
        raise UsageError(f"{spec} needs {', '.join(missing)}: give {' '.join(remedies)}")


def _value(key: str, text: str, parameter: inspect.Parameter | None) -> Any:
    wanted = {"int": int, "float": float, "bool": bool, "str": str}.get(_annotation(parameter))
    if wanted is str:
        return text
    if wanted is None:
        return _looks_like(text)
    value = _looks_like(text)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise UsageError(f"the model's argument {key!r} must be {wanted.__name__}, not {text!r}")
    return value


def _annotation(parameter: inspect.Parameter | None) -> str:
    if parameter is None:
        return ""
    return parameter.annotation if isinstance(parameter.annotation, str) else parameter.annotation.__name__


def _looks_like(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    return _module_of_file(path.resolve(), path.stat().st_mtime_ns)


@functools.cache
def _module_of_file(path: Path, modified_ns: int) -> Any:  # noqa: ARG001 - a changed file is another key
    _append_to_path(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look their module up by name; a user's file must not hide an installed module.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> Any:
    _append_to_path(Path.cwd())
    return importlib.import_module(name)


def _append_to_path(folder: Path) -> None:
    entry = str(folder.resolve())
    if entry not in sys.path:
        sys.path.append(entry)


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of (" + ", ".join(type(item).__name__ for item in value) + ")"
    return f"{type(value).__module__}.{type(value).__name__}"


def _build_from_config(
    path: Path, arguments: Mapping[str, str], micro_batch_size: int, sequence_length: int | None
) -> tuple[nn.Module, dict[str, Any]]:
    config = _read_config(path, arguments)
    model_class = _model_class(config)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    model = model_class._from_config(config, dtype=torch.float32)
    tokens = _example_tokens(config, micro_batch_size, _sequence_length(config, str(path), sequence_length))
    return model, {"input_ids": tokens, "labels": tokens.clone()}


def _read_config(path: Path, arguments: Mapping[str, str]) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UsageError("a Hugging Face config needs transformers: pip install 'shardplan[hf]'") from error
    file = path / "config.json" if path.is_dir() else path
    try:
        fields = json.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise UsageError(f"{file} has no model_type, so it is not the config of a Hugging Face model")
    for key, text in arguments.items():
        if key not in fields:
            raise UsageError(f"{file} has no field {key!r} to set by --model-arg")
        fields[key] = _looks_like(text)
    model_type = fields.pop("model_type")
    try:
        return transformers.AutoConfig.for_model(model_type, **fields)
    except ValueError as error:
        raise UsageError(f"{file}: transformers {transformers.__version__} has no model type {model_type!r}") from error
    except Exception as error:  # its validators have errors of their own
        raise UsageError(f"{file}: transformers refuses the config: {' '.join(str(error).split())}") from error


def _model_class(config: Any) -> Any:
    """Returns the class with a loss over tokens that fits the config: the one it names, or else the first we know."""
    import transformers
    from transformers.models.auto import modeling_auto

    mappings = (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    if getattr(config, "is_encoder_decoder", False):
        mappings = mappings[::-1]
    named = [name for mapping in mappings for name in _names(mapping.get(config.model_type))]
    if not named:
        raise UsageError(f"the model type {config.model_type!r} has no language model; write a callable that builds it")
    asked = [name for name in config.architectures or [] if name in named]
    return getattr(transformers, (asked or named)[0])


def _names(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def _sequence_length(config: Any, spec: str, sequence_length: int | None) -> int:
    num_positions = _num_positions(config)
    if sequence_length is None:
        return min(DEFAULT_SEQUENCE_LENGTH, num_positions or DEFAULT_SEQUENCE_LENGTH)
    if num_positions is not None and sequence_length > num_positions:
        raise UsageError(f"{spec} has {num_positions} positions, fewer than --sequence-length {sequence_length}")
    return sequence_length


def _num_positions(config: Any) -> int | None:
    """Returns the length of a table of learned positions, or None when positions are computed."""
    if getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None):
        return None
    for field in ("n_positions", "max_position_embeddings"):
        positions = getattr(config, field, None)
        if isinstance(positions, int):
            return positions
    return None


def _example_tokens(config: Any, micro_batch_size: int, sequence_length: int) -> torch.Tensor:
    """Returns tokens (micro_batch_size, sequence_length) that span the vocabulary without the padding token."""
    first, end = 0, int(config.get_text_config().vocab_size)
    padding = getattr(config, "pad_token_id", None)
    if isinstance(padding, int) and 0 <= padding < end:
        first, end = (padding + 1, end) if padding < end // 2 else (first, padding)
    count = micro_batch_size * sequence_length
    tokens = torch.linspace(first, end - 1, count, dtype=torch.float64).long()
    return tokens.reshape(micro_batch_size, sequence_length)
