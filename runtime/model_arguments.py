"""The model arguments of the command line, texts, as values for the callable or the config that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from runtime.model_errors import UsageError

GIVEN = ("micro_batch_size", "sequence_length")
"""Parameters of a callable that the job fills, and no model argument."""


def typed_arguments(factory: Callable[..., Any], arguments: Mapping[str, str]) -> dict[str, Any]:
    """Returns the model arguments as values for `factory`.

    A parameter annotated `int`, `float`, `bool` or `str` decides the type. Without such an annotation the text's look
    decides, as in `looks_like`.

    Raises:
        UsageError: `factory` has no parameter of that name, or the text is not of the parameter's type.
    """
    values: dict[str, Any] = {}
    for key, text in arguments.items():
        if key in GIVEN:
            raise UsageError(f"{key} is no argument of the model's own: give it by --{key.replace('_', '-')}")
        if not accepts(factory, key):
            known = ", ".join(name for name in inspect.signature(factory).parameters if name not in GIVEN)
            raise UsageError(f"the model takes no argument {key!r}; it takes: {known or 'none'}")
        values[key] = _value(key, text, inspect.signature(factory).parameters.get(key))
    return values


def accepts(factory: Callable[..., Any], name: str) -> bool:
    """Whether `factory` can be called with an argument of that name."""
    parameters = inspect.signature(factory).parameters
    return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def check_complete(spec: str, factory: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    """Returns if `factory` can be called with these keywords.

    Raises:
        UsageError: It needs another, or takes no micro-batch size; the text says how to give what is missing.
    """
    parameters = inspect.signature(factory).parameters
    if not accepts(factory, "micro_batch_size"):
        raise UsageError(f"{spec} takes no micro_batch_size; add the parameter, and make the batch of so many samples")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in keywords
    ]
    if missing:
        remedies = ["--sequence-length S" if name in GIVEN else f"--model-arg {name}=VALUE" for name in missing]
        raise UsageError(f"{spec} needs {', '.join(missing)}: give {' '.join(remedies)}")


def looks_like(text: str) -> Any:
    """Returns the value a text looks like: `true` a bool, `12` an int, `1e-3` a float, `none` None, else the text."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _value(key: str, text: str, parameter: inspect.Parameter | None) -> Any:
    wanted = {"int": int, "float": float, "bool": bool, "str": str}.get(_annotation(parameter))
    if wanted is str:
        return text
    if wanted is None:
        return looks_like(text)
    value = looks_like(text)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise UsageError(f"the model's argument {key!r} must be {wanted.__name__}, not {text!r}")
    return value


def _annotation(parameter: inspect.Parameter | None) -> str:
    if parameter is None:
        return ""
    return parameter.annotation if isinstance(parameter.annotation, str) else parameter.annotation.__name__
