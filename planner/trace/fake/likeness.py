"""What a module is beside its class and parameters: all that its forward may ask to decide what it runs."""

from __future__ import annotations

import enum
import types
from typing import Any

import torch
from torch import nn

_NUMBERS_OF_LAYERS = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "idx"})
"""Names under which a layer holds its own number."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_TORCH = frozenset(vars(nn.Module())) - {"training"}
_MOST_VALUES = 64
"""Elements of a buffer whose values are looked at: flags and small tables."""
_DEEPEST = 3


def likeness(module: nn.Module) -> str:
    """Returns a text that is equal for two modules whose attributes, buffers and hooks are."""
    own = {name: value for name, value in vars(module).items() if name not in _OF_TORCH}
    attributes = [(name, _described(own[name])) for name in sorted(own) if name not in _NUMBERS_OF_LAYERS]
    buffers = [(name, _described(buffer)) for name, buffer in module._buffers.items()]
    hooks = [_described(list(getattr(module, name, {}).values())) for name in _HOOKS]
    return str((attributes, buffers, hooks))


def _described(value: Any, depth: int = 0) -> str:
    """A value by what it is, never by where it lies in memory."""
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, int | float | complex | str | bytes | None | torch.dtype | torch.device | torch.Size):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if callable(value) and not isinstance(value, nn.Module):
        return _callable(value, depth)
    if depth == _DEEPEST or isinstance(value, nn.Module):
        return type(value).__qualname__
    return _with_contents(value, depth + 1)


def _with_contents(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return str([(_described(key, depth), _described(item, depth)) for key, item in value.items()])
    if isinstance(value, tuple | list):
        return str([_described(item, depth) for item in value])
    if isinstance(value, set | frozenset):
        return str(sorted(_described(item, depth) for item in value))
    return f"{type(value).__qualname__}{_described(dict(getattr(value, '__dict__', {})), depth)}"


def _tensor(tensor: torch.Tensor) -> str:
    value = getattr(tensor, "_shadow_value", None)
    seen = value.tolist() if value is not None and value.numel() <= _MOST_VALUES else ""
    return f"{tuple(tensor.shape)} {tensor.dtype} {seen}"


def _callable(value: Any, depth: int) -> str:
    if isinstance(value, types.MethodType):
        return f"{type(value.__self__).__qualname__}.{_callable(value.__func__, depth)}"
    if not isinstance(value, types.FunctionType):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    code = value.__code__
    held = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
    inside = [_described(item, depth + 1) for item in held] if depth < _DEEPEST else []
    return f"{code.co_filename}:{code.co_firstlineno} {value.__qualname__} {code.co_code.hex()} {inside}"
