"""Builds the user's model and an example batch, for the tracer and for the launcher alike.

A model is named in one of three ways: `FILE.py:CALLABLE`, `package.module:CALLABLE`, or the path of a Hugging Face
`config.json` (`hf_model`). A callable gets `micro_batch_size`, `sequence_length` (when it was given and is accepted)
and the model arguments, and returns `(nn.Module, batch)`. Nothing here knows the planner, so that a launcher can carry
it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from runtime.hf_model import build_from_config, config_sequence_length, kept_inputs_of_config
from runtime.model_arguments import accepts, check_complete, typed_arguments
from runtime.model_errors import UsageError

Kind = Literal["file", "module", "hf_config"]


def build(
    spec: str, kind: Kind, arguments: Mapping[str, str], micro_batch_size: int, sequence_length: int | None
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
        return build_from_config(Path(spec), arguments, micro_batch_size, sequence_length)
    factory = load_callable(spec, kind)
    keywords = {"micro_batch_size": micro_batch_size, **typed_arguments(factory, arguments)}
    if sequence_length is not None:
        if not accepts(factory, "sequence_length"):
            raise UsageError(f"{spec} takes no sequence_length; leave --sequence-length out, or add the parameter")
        keywords["sequence_length"] = sequence_length
    check_complete(spec, factory, keywords)
    made = factory(**keywords)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise TypeError(f"{spec} must return (nn.Module, batch), not {_described(made)}")
    model, batch = made
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"{spec} must return its batch as a dict of the model's keyword arguments, not {_described(batch)}"
        )
    return model, dict(batch)


def load_callable(spec: str, kind: Kind) -> Callable[..., Any]:
    """Returns the callable that `spec` names; the folder of a file is appended to `sys.path`.

    Raises:
        UsageError: There is no such file, module or callable.
    """
    place, _, name = spec.rpartition(":")
    try:
        module = _import_file(Path(place)) if kind == "file" else _import_module(place)
    except ModuleNotFoundError as error:
        raise UsageError(f"cannot load {place}: {error}{_remedy(error, place)}") from error
    except ImportError as error:
        raise UsageError(f"cannot load {place}: {error}") from error
    except SyntaxError as error:
        raise UsageError(f"cannot load {place}: {error.filename}:{error.lineno}: {error.msg}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(f"{place} has no callable {name!r}")
    return found  # type: ignore[no-any-return]


def known_sequence_length(
    spec: str, kind: Kind, arguments: Mapping[str, str], sequence_length: int | None
) -> int | None:
    """Returns the tokens per sample that `build` uses: the given ones, or else the model's default if it has one.

    Raises:
        UsageError: As `build`.
    """
    if kind == "hf_config":
        return config_sequence_length(Path(spec), arguments, sequence_length)
    if sequence_length is not None:
        return sequence_length
    parameter = inspect.signature(load_callable(spec, kind)).parameters.get("sequence_length")
    default = None if parameter is None else parameter.default
    return default if isinstance(default, int) else None


def kept_inputs(spec: str, kind: Kind, arguments: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the arguments of the model that generated data leaves as the example batch has them.

    Random integers would break some: the offsets of bags of embeddings, the places of an image's tokens. A callable
    names them by an attribute: `make.kept_inputs = ("offsets",)`.

    Raises:
        UsageError: As `build`.
    """
    if kind == "hf_config":
        return kept_inputs_of_config(Path(spec), arguments)
    return tuple(getattr(load_callable(spec, kind), "kept_inputs", ()))


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
        key: map_tensors(value, lambda t: t.to(dtype) if t.is_floating_point() else t) for key, value in batch.items()
    }


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Returns `value` with each tensor in it replaced, in lists, tuples and dictionaries too."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, function) for item in value)
    if type(value) is dict:
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def _remedy(error: ModuleNotFoundError, place: str) -> str:
    """What to do about a module that is imported and not there; the model's own one has no package to install."""
    missing = (error.name or "").partition(".")[0]
    if not missing or missing == place.partition(".")[0]:
        return ""
    return f"; install it in this environment (pip install {missing}), or leave the import out"


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"cannot load {path}: there is no such file")
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
    if isinstance(value, torch.Tensor):
        return "a tensor"
    return f"{type(value).__module__}.{type(value).__name__}"
