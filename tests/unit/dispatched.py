"""What a step dispatches, real or fake: each operator with its results, and the bytes of the storages that live."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

QUESTIONS = ("prim::device", "aten::sym_", "aten::_local_scalar_dense", "aten::_has_compatible_shallow_copy_type")


class Result(NamedTuple):
    """One tensor that an operator returned."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    storage_bytes: int


class Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operators while on; storages of `held` tensors are not counted."""

    def __init__(self, held: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held = {tensor.untyped_storage()._cdata for tensor in held}
        self._watches: dict[int, weakref.ref[Any]] = {}
        self.operators: list[tuple[str, tuple[Result, ...]]] = []
        self.live_bytes = 0
        self.peak_bytes = 0
        self.saved_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func.name()).startswith(QUESTIONS):
            return result
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.operators.append((str(func.name()), tuple(_result(tensor) for tensor in tensors)))
        for tensor in tensors:
            self._follow(tensor.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        address, num_bytes = storage._cdata, storage.nbytes()
        if address in self._held or address in self._watches:
            return

        def died(_: weakref.ref[Any]) -> None:
            del self._watches[address]
            self.live_bytes -= num_bytes

        self._watches[address] = weakref.ref(storage, died)
        self.live_bytes += num_bytes


def _result(tensor: torch.Tensor) -> Result:
    # Along an axis of one element any stride will do.
    strides = tuple(stride if size != 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Result(tuple(tensor.shape), strides, tensor.dtype, tensor.untyped_storage().nbytes())


def step(module: torch.nn.Module, inputs: Any, loss_of: Callable[[Any], torch.Tensor]) -> Dispatched:
    """Runs forward, loss and backward of a module."""
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    dispatched = Dispatched([*module.parameters(), *module.buffers(), *leaves])
    with dispatched:
        loss = loss_of(module(*inputs))
        dispatched.saved_bytes = dispatched.live_bytes
        loss.backward()  # type: ignore[no-untyped-call]
    return dispatched
