"""Lets the models of transformers take their kernel paths, as they do on a GPU where the kernel packages are.

transformers 5 wraps each function that a kernel package may replace, and decides when the model's file is imported:
without the package, a Mamba runs a loop of Python over the sequence. Such a wrapper keeps what it decided in its own
closure, where it is replaced here.

Source: transformers 5.24.0, integrations/hub_kernels.py (use_kernel_func_from_hub_with_fallback),
modeling_flash_attention_utils.py and modeling_utils.py (_flash_attn_can_dispatch).
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

from planner.trace.operators.entry import Entry
from planner.trace.operators.linear_attention import rwkv_linear_attention

_CLOSURE = frozenset(
    {"applicable_params", "func_name", "implementation", "is_new_implementation", "package", "torch_function"}
)
_DECORATOR = "use_kernel_func_from_hub_with_fallback"
_FLASH_STATE = (
    "_loaded_implementation",
    "_flash_fn",
    "_flash_varlen_fn",
    "_flash_with_kvcache_fn",
    "_pad_fn",
    "_unpad_fn",
    "_process_flash_kwargs_fn",
    "_process_with_kvcache_kwargs_fn",
)
"""What modeling_flash_attention_utils remembers once flash attention was used."""


@contextmanager
def transformers_kernels(packages: dict[str, tuple[Entry, ...]], missing: Callable[[str], None]) -> Iterator[None]:
    """While on, wrapped functions run the entries of their packages, and flash_attention_2 is there.

    Args:
        packages: The entries of each package.
        missing: Is told of each function that has no entry, when it is called and runs the model's own fallback.
    """
    with ExitStack() as stack:
        stack.enter_context(_wrappers(packages, missing))
        if "transformers" in sys.modules:
            stack.enter_context(_flash_attention_2())
        rwkv = sys.modules.get("transformers.models.rwkv.modeling_rwkv")
        if rwkv is not None:
            stack.enter_context(patch.object(rwkv, "rwkv_linear_attention", rwkv_linear_attention))
        yield


@contextmanager
def _wrappers(packages: dict[str, tuple[Entry, ...]], missing: Callable[[str], None]) -> Iterator[None]:
    values = {(entry.package, entry.name): entry.value for members in packages.values() for entry in members}
    before: list[tuple[dict[str, Any], Any]] = []
    for cells in _closures():
        package, name = cells["package"].cell_contents, cells["func_name"].cell_contents
        own = cells["implementation"].cell_contents
        before.append((cells, own))
        _implement(cells, values.get((package, name)) or _noting(own, name, package, missing))
    try:
        yield
    finally:
        for cells, own in before:
            _implement(cells, own)
        # A model's file that was imported in between has taken the stand-ins for the packages.
        for cells in _closures():
            if any(cells["implementation"].cell_contents is value for value in values.values()):
                _implement(cells, cells["torch_function"].cell_contents)


def _implement(cells: dict[str, Any], implementation: Any) -> None:
    cells["implementation"].cell_contents = implementation
    cells["applicable_params"].cell_contents = tuple(inspect.signature(implementation).parameters)
    cells["is_new_implementation"].cell_contents = implementation is not cells["torch_function"].cell_contents


def _closures() -> Iterator[dict[str, Any]]:
    """Yields the cells of every wrapper, by their names, wherever it is bound: `kernels` puts them into modules."""
    hub = sys.modules.get("transformers.integrations.hub_kernels")
    decorate = getattr(hub, _DECORATOR, None)
    if decorate is None or not any(_DECORATOR in vars(module) for module in _models()):
        return
    for wrapper in gc.get_referrers(*_codes_within(decorate.__code__)):
        if isinstance(wrapper, FunctionType) and wrapper.__closure__ and {*wrapper.__code__.co_freevars} >= _CLOSURE:
            yield dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__, strict=True))


def _models() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("transformers.models.")]


def _codes_within(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return inner + [deeper for one in inner for deeper in _codes_within(one)]


def _noting(function: Any, name: str, package: str, missing: Callable[[str], None]) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        missing(f"{package}'s {name} has no registered operator; the model's own fallback in PyTorch was traced")
        return function(*args, **kwargs)

    noted.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return noted


@contextmanager
def _flash_attention_2() -> Iterator[None]:
    """Transformers looks for the package's metadata and for a GPU; here the stand-in is enough."""
    from transformers import modeling_flash_attention_utils, modeling_utils

    plain = modeling_utils.PreTrainedModel._flash_attn_can_dispatch

    def can_dispatch(model: Any, flash_attn_version: int, *args: Any, **kwargs: Any) -> bool:
        if flash_attn_version == 2 and model._supports_flash_attn:
            return True
        return bool(plain(model, flash_attn_version, *args, **kwargs))

    available = modeling_flash_attention_utils.is_flash_attn_2_available
    with ExitStack() as stack:
        stack.enter_context(patch.object(modeling_utils.PreTrainedModel, "_flash_attn_can_dispatch", can_dispatch))
        for name, module in list(sys.modules.items()):
            if name.startswith("transformers.") and vars(module).get("is_flash_attn_2_available") is available:
                stack.enter_context(patch.object(module, "is_flash_attn_2_available", lambda *_, **__: True))
        for state in _FLASH_STATE:
            if hasattr(modeling_flash_attention_utils, state):
                stack.enter_context(patch.object(modeling_flash_attention_utils, state, None))
        yield
