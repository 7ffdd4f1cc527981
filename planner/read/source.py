"""Reads the MODEL of the command line: which of the three ways it is, and whether what it names is there."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path

from planner.errors import InputError
from planner.model_graph import ModelSource


def read_source(spec: str, arguments: tuple[str, ...] = ()) -> ModelSource:
    """Returns where the model comes from, with absolute paths; nothing of the user's code runs.

    Args:
        spec: `FILE.py:CALLABLE`, `package.module:CALLABLE`, or the path of a Hugging Face config.json or its folder.
        arguments: The `--model-arg`s, each `KEY=VALUE`.

    Raises:
        InputError: The spec is none of these, a file or callable is missing, or an argument is not `KEY=VALUE`.
    """
    values = _arguments(arguments)
    path = Path(spec)
    if path.is_dir() or path.suffix == ".json":
        return ModelSource(spec=str(_config_file(path)), kind="hf_config", arguments=values)
    place, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier() or not place:
        raise InputError(
            f"cannot read the model {spec!r}: give FILE.py:CALLABLE, package.module:CALLABLE, or the path of a "
            "Hugging Face config.json or of its folder"
        )
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise InputError(f"there is no file {place}")
        _check_defines(file, name)
        return ModelSource(spec=f"{file}:{name}", kind="file", arguments=values)
    _check_module(place, name)
    return ModelSource(spec=spec, kind="module", arguments=values)


def _arguments(arguments: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        # A config's fields may be in parts of it: text_config.num_hidden_layers.
        if not equals or not all(part.isidentifier() for part in key.split(".")):
            raise InputError(f"--model-arg {argument!r} is not KEY=VALUE")
        if key in values:
            raise InputError(f"--model-arg {key} is given twice: {values[key]!r} and {value!r}")
        values[key] = value
    return values


def _config_file(path: Path) -> Path:
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    try:
        fields = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise InputError(f"{file} has no model_type, so it is not the config of a Hugging Face model{_other(fields)}")
    return file.resolve()


def _other(fields: object) -> str:
    """What a config is that is none of transformers'."""
    if not isinstance(fields, dict):
        return ""
    for key, library in (("_class_name", "diffusers"), ("peft_type", "peft")):
        if key in fields:
            return f"; it is one of {library}: write a callable that builds the model and computes a loss"
    return ""


def _check_module(name: str, callable_name: str) -> None:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise InputError(f"cannot find the module {name}: {error}") from error
    if found is None:
        raise InputError(f"cannot find the module {name} in this environment or in {folder}")
    if found.origin is not None and found.origin.endswith(".py"):
        _check_defines(Path(found.origin), callable_name)


def _check_defines(file: Path, name: str) -> None:
    """A name that no statement of the file binds cannot be there, unless it is imported by a star or made on demand."""
    try:
        tree = ast.parse(file.read_text(), filename=str(file))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not Python: {error}") from error
    bound = _bound_names(tree)
    if name not in bound and "*" not in bound and "__getattr__" not in bound:
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        raise InputError(f"{file} has no {name!r}; it has: {', '.join(functions) or 'no function or class'}")


def _bound_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names
