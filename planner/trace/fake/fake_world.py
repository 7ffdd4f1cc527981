"""What has to be arranged around torch and transformers so that fake tensors take the path that real ones take."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

from planner.trace.fake.cached_results import forget_cached_tensors
from planner.trace.fake.conversion import convertible_modules
from planner.trace.fake.shadow import Shadow


@contextmanager
def fake_world(fake_mode: FakeTensorMode, shadow: Shadow) -> Iterator[None]:
    """Everything created inside is fake; whole numbers keep their values.

    oneDNN is off, since its operators hide their scratch memory and FLOPs from the dispatcher.
    """
    with ExitStack() as stack:
        forget_cached_tensors()
        stack.callback(forget_cached_tensors)
        stack.enter_context(_without_onednn())
        stack.enter_context(_one_thread())
        # Without this, a kernel that asks for the address of a fake tensor's memory gets 0, and runs there.
        stack.enter_context(_replaced(fake_mode, "_allow_unsafe_data_ptr_access", False))
        stack.enter_context(_same_random_numbers())
        stack.enter_context(_quiet(logging.getLogger("torch._subclasses.fake_tensor")))
        stack.enter_context(_replaced(FakeTensorMode, "__deepcopy__", lambda mode, _: mode))
        stack.enter_context(convertible_modules())
        stack.enter_context(_replaced(torch.Tensor, "__deepcopy__", _deepcopy(torch.Tensor.__deepcopy__)))
        stack.enter_context(_replaced(nn.Module, "to", _move_only_when_needed(nn.Module.to)))
        stack.enter_context(_replaced(torch.Tensor, "tolist", _tolist(torch.Tensor.tolist, shadow)))
        stack.enter_context(_replaced(torch.Tensor, "numpy", _numpy(torch.Tensor.numpy, shadow)))
        stack.enter_context(_replaced(torch.Tensor, "__format__", _format(torch.Tensor.__format__)))
        stack.enter_context(_replaced(torch, "tensor", _tensor(torch.tensor)))
        imports = sys.modules.get("transformers.utils.import_utils")
        if imports is not None:
            # transformers 5 takes fake tensors for a sign of torch.compile, and then builds other masks.
            stack.enter_context(_replaced(imports, "is_fake_tensor", lambda _: False))
        stack.enter_context(fake_mode)
        stack.enter_context(shadow)
        yield


@contextmanager
def without_initialization() -> Iterator[None]:
    """Initializers do nothing: there are no weights to fill, and some loop until the values please them."""
    modules: list[Any] = [nn.init]
    initialization = sys.modules.get("transformers.initialization")
    if initialization is not None:
        modules.append(initialization)
        modules += [sys.modules[name] for name in initialization.TORCH_MODULES_TO_PATCH if name in sys.modules]
    known = frozenset(sys.modules)
    own = {name: getattr(nn.init, name) for name in _initializers(nn.init)}
    doing_nothing = {name: _unchanged(name) for name in [*own, "copy_"]}
    with ExitStack() as stack:
        stack.callback(_give_back, known, {doing_nothing[name]: function for name, function in own.items()})
        for module in modules:
            for name in _initializers(module):
                stack.enter_context(_replaced(module, name, doing_nothing[name]))
        yield


def _give_back(known: frozenset[str], own: dict[Any, Any]) -> None:
    """What was imported in between has bound initializers that do nothing, for good."""
    for module_name, module in list(sys.modules.items()):
        if module_name in known:
            continue
        names = vars(module) if isinstance(module, ModuleType) else {}
        for table in (names, *(value for value in names.values() if type(value) is dict)):
            bound = [
                (key, own[value]) for key, value in table.items() if isinstance(value, FunctionType) and value in own
            ]
            table.update(bound)


def _initializers(module: Any) -> list[str]:
    names = [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]
    return [name for name in [*names, "copy_"] if callable(getattr(module, name, None))]


def _unchanged(name: str) -> Callable[..., Any]:
    """Returns a function of its own for each initializer, so that it is known whose place it takes."""

    def unchanged(tensor: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - stands for any initializer
        return tensor

    unchanged.__name__ = name
    return unchanged


@contextmanager
def _without_onednn() -> Iterator[None]:
    # Not torch.backends.mkldnn.flags: it also sets TF32, which warns on machines that lack it.
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """The few random numbers that are drawn are the same in each run, and the user's go on as if there was none."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """What is computed for real is small: sharing it among threads costs more, on a busy machine a hundred times."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Torch prints a traceback of its own for each operator that refuses its operands, before it raises."""
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = getattr(owner, name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _move_only_when_needed(to: Callable[..., Any]) -> Callable[..., Any]:
    """`module.to(dtype)` inside a forward swaps fake parameters that others refer to, even when nothing changes."""

    def moved(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        try:
            device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        except TypeError:
            return to(module, *args, **kwargs)
        tensors = [*module.parameters(), *module.buffers()]
        same_type = all(dtype is None or not t.is_floating_point() or t.dtype == dtype for t in tensors)
        same_device = all(device is None or t.device == device for t in tensors)
        if same_type and same_device and memory_format is None:
            return module
        return to(module, *args, **kwargs)

    return moved


def _deepcopy(deepcopy: Callable[..., Any]) -> Callable[..., Any]:
    """Torch asks for the address of a tensor that it copies."""

    def copied(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
        if not isinstance(tensor, FakeTensor) or not tensor.is_leaf:
            return deepcopy(tensor, memo)
        if id(tensor) not in memo:
            with torch.no_grad():
                copy = tensor.detach().clone()
            is_parameter = isinstance(tensor, nn.Parameter)
            requires_grad = tensor.requires_grad
            memo[id(tensor)] = nn.Parameter(copy, requires_grad) if is_parameter else copy.requires_grad_(requires_grad)
        return memo[id(tensor)]

    return copied


def _tolist(tolist: Callable[..., Any], shadow: Shadow) -> Callable[..., Any]:
    """`tolist` reads memory without asking the dispatcher."""

    def listed(tensor: torch.Tensor) -> Any:
        if not isinstance(tensor, FakeTensor):
            return tolist(tensor)
        value = _known_or_ones(tensor, shadow, "a list")
        with no_dispatch():
            return tolist(value)

    return listed


def _numpy(numpy: Callable[..., Any], shadow: Shadow) -> Callable[..., Any]:
    """So does `numpy`, whose array shares the tensor's memory: here it is a copy."""

    def array(tensor: torch.Tensor, *, force: bool = False) -> Any:
        if not isinstance(tensor, FakeTensor):
            return numpy(tensor, force=force)
        value = _known_or_ones(tensor, shadow, "an array")
        with no_dispatch():
            return numpy(value.clone(), force=force)

    return array


def _known_or_ones(tensor: torch.Tensor, shadow: Shadow, form: str) -> torch.Tensor:
    value = shadow.value(tensor)
    if value is not None:
        return value
    shadow.assume(f"values of the model are read as {form}; assumed to be ones")
    with no_dispatch():
        return torch.ones(tensor.shape, dtype=tensor.dtype)


def _format(format_: Callable[..., str]) -> Callable[..., str]:
    def formatted(tensor: torch.Tensor, spec: str) -> str:
        if isinstance(tensor, FakeTensor) and tensor.dim() == 0:
            return format(tensor.item(), spec)
        return format_(tensor, spec)

    return formatted


def _tensor(tensor: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`torch.tensor` of a list of fake scalars needs their values."""

    def made(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if isinstance(data, list | tuple) and any(isinstance(item, FakeTensor) for item in tree_leaves(data)):
            data = tree_map(lambda item: item.tolist() if isinstance(item, FakeTensor) else item, data)
        return tensor(data, *args, **kwargs)

    return made
