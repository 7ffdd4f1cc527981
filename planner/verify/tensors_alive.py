"""Counts the bytes of all tensors alive in a real step, and its FLOPs, beneath every operator that torch dispatches."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch._prims_common
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from planner.trace.flop_formulas.flops import operator_flop


class TensorsAlive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is on. What `outside` holds (parameters, buffers, inputs) is not counted.

    Inside backward, a checkpoint that runs its forward again is told by the modules that run, or by gradients being on.
    """

    def __init__(self, outside: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = self.peak_bytes = 0
        self.flop = {"forward": 0, "recomputation": 0, "backward": 0}
        # Held, so that a buffer which forward replaces leaves its address to no other.
        self._outside = {tensor.untyped_storage()._cdata: tensor for tensor in outside}
        self._watches: dict[int, weakref.ref[Any]] = {}
        self._depth = 0
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Any:
        self._hooks = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def _enter_module(self, module: nn.Module, arguments: Any) -> None:  # noqa: ARG002 - torch's signature
        self._depth += 1

    def _leave_module(self, module: nn.Module, arguments: Any, output: Any) -> None:  # noqa: ARG002 - torch's signature
        self._depth -= 1

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.add.Tensor and self._phase() == "backward" and _is_of_the_engine(args):
            return args[0].add_(args[1])
        result = func(*args, **kwargs)
        if func.namespace == "prim":
            return result
        self.flop[self._phase()] += operator_flop(func, args, kwargs, result) or 0
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._follow(leaf)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return result

    def _phase(self) -> str:
        if torch._C._current_graph_task_id() == -1:
            return "forward"
        return "recomputation" if torch.is_grad_enabled() or self._depth else "backward"

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._outside or address in self._watches:
            return
        num_bytes = storage.nbytes()
        self.live_bytes += num_bytes

        def died(_: weakref.ref[Any]) -> None:
            del self._watches[address]
            self.live_bytes -= num_bytes

        self._watches[address] = weakref.ref(storage, died)


_HOLDERS = 4
"""Of an operand that only autograd's buffer holds, while it is on its way through the dispatcher into Python."""
_HOLDERS_OF_STORAGE = 2


def _is_of_the_engine(operands: tuple[Any, ...]) -> bool:
    """Whether autograd would have added in place, where two gradients meet, if no mode were on.

    Source: torch 2.13, torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace: the first operand is dense, and
    the buffer is the only one to hold it and its memory. A view shares the memory of what it views.
    """
    if len(operands) != 2 or not all(isinstance(one, torch.Tensor) for one in operands):
        return False
    first = operands[0]
    holders = first._use_count(), torch._C._storage_Use_Count(first.untyped_storage()._cdata)
    return (
        holders == (_HOLDERS, _HOLDERS_OF_STORAGE)
        and first.dtype == operands[1].dtype
        and torch._prims_common.is_non_overlapping_and_dense_or_false(first)
    )
