"""Follows which module of the model runs, and tells the call and the phase that an operator belongs to.

Which call an operator of backward belongs to is found by autograd's sequence numbers: an operator of forward creates
the node of its derivative, and that number is known when the derivative runs.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from planner.trace.record.recording import Call, NodePhase

_NO_SEQUENCE = 1 << 62
"""Nodes that collect gradients have the greatest number there is, whatever they belong to."""


class ModuleCalls:
    """The calls so far, and the one that runs; `names` are those of the modules of the model."""

    def __init__(self, names: dict[nn.Module, str]) -> None:
        self._names = names
        self.calls = [Call("", 0, "forward")]
        """In order of their beginning; the root's is the first."""
        self._stack = [0]
        self._sequence: list[int] = []
        self._sequence_call: list[int] = []
        self._last_call = 0
        self._num_applied = 0
        """How many functions of the model's own run again, one within the other."""
        self._given_twice: dict[int, set[int]] = {}
        self._has_loss = False
        self._failure = 0
        """The identity of the last error that left a module. A checkpoint stops by one: who holds it holds tensors."""
        self._failed_in = ""

    @property
    def current(self) -> int:
        """Index of the innermost call that runs."""
        return self._stack[-1]

    @contextmanager
    def following(self, on_output: Callable[[int, Any], None]) -> Iterator[None]:
        """While on, calls are followed; `on_output` is told of each call that ends, and what it returned."""

        def leave(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001 - torch's signature
            call = self._leave()
            if call is not None:
                on_output(call, output)

        apply = torch.autograd.Function.__dict__["apply"]
        hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(leave, always_call=True),
        ]
        try:
            with patch.object(torch.autograd.Function, "apply", classmethod(self._applied(apply.__func__))):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def expect_backward(self) -> None:
        """Says that forward has given its loss: what runs from now on is backward's."""
        self._has_loss = True

    def module_of(self, error: BaseException) -> str:
        """Returns the name of the innermost module whose forward the error left, or that runs now."""
        return self._failed_in if id(error) == self._failure else self.calls[self.current].module

    def is_given_twice(self, tensor: torch.Tensor) -> bool:
        """Whether the call that runs has this tensor as several positional arguments.

        An engine that wraps arguments gives such a module different tensors, and torch's attention then takes its
        weight apart.
        """
        return tensor.untyped_storage()._cdata in self._given_twice.get(self.current, ())

    def place(self) -> tuple[NodePhase, int]:
        """Returns the phase and the call that the operator which runs now belongs to."""
        in_backward = _in_backward()
        if self._has_loss and not in_backward:
            return "backward", self._last_call  # The loss's own gradient, which autograd is then given.
        # In backward, a checkpoint runs its forward again: with gradients on, but for what turns them off there.
        again = in_backward and (torch.is_grad_enabled() or len(self._stack) > 1 or self._num_applied > 0)
        if in_backward and not again:
            self._last_call = self._call_of_derivative()
            return "backward", self._last_call
        call = self._caller()
        sequence = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
        if not self._sequence or sequence > self._sequence[-1]:
            self._sequence.append(sequence)
            self._sequence_call.append(call)
        self._last_call = call
        return "recomputation" if again else "forward", call

    def _caller(self) -> int:
        """Between the modules that a checkpoint calls again, it is the derivative that asked for them that tells."""
        return self._call_of_derivative() if _in_backward() and len(self._stack) == 1 else self.current

    def _call_of_derivative(self) -> int:
        """Returns the call whose derivative autograd computes now; the last one where it does not say."""
        node = torch._C._current_autograd_node()
        sequence = node._sequence_nr() if node is not None else -1
        place = bisect.bisect_left(self._sequence, sequence)
        known = 0 <= sequence < _NO_SEQUENCE and place < len(self._sequence)
        return self._sequence_call[place] if known else self._last_call

    def _enter(self, module: nn.Module, args: Any) -> None:
        name, caller = self._names.get(module), self._caller()
        if not name:
            # A module that the model made on the fly counts as part of its caller; the root is call 0.
            self._stack.append(caller)
            return
        phase = "backward" if _in_backward() else "forward"
        self.calls.append(Call(name, caller, phase, inputs_require_grad=any(True for _ in with_gradient(args))))
        self._stack.append(len(self.calls) - 1)
        given = [argument for argument in args if isinstance(argument, torch.Tensor)]
        twice = [one for place, one in enumerate(given) if any(one is other for other in given[:place])]
        self._given_twice[self.current] = {tensor.untyped_storage()._cdata for tensor in twice}

    def _leave(self) -> int | None:
        """Returns the call that has ended, or None where it goes on around what has."""
        error = sys.exception()
        if error is not None and id(error) != self._failure:
            self._failure, self._failed_in = id(error), self.calls[self.current].module
        call = self._stack.pop()
        return None if call in self._stack else call

    def _applied(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the model's own turns gradients off while it runs, in a checkpoint's second forward too."""

        def applied(function: type, *arguments: Any, **keywords: Any) -> Any:
            again = _in_backward() and (torch.is_grad_enabled() or self._num_applied > 0)
            self._num_applied += again
            try:
                return apply(function, *arguments, **keywords)
            finally:
                self._num_applied -= again

        return applied


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def with_gradient(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in a module's arguments or output that need a gradient."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from with_gradient(item)
