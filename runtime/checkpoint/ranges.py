"""What a rank holds of a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from runtime.checkpoint.fingerprint import Fingerprint

StateKinds = dict[str, dict[str, Any]]
"""For each trained parameter that has been updated, its states: None for one of its shape, else the value itself."""


@dataclass(frozen=True, slots=True)
class Range:
    """Some elements of a flat tensor, in the order of the whole one."""

    key: str
    """Of the tensor in the checkpoint: see `value_key` and `state_key`."""
    num_elements: int
    """Of the whole tensor."""
    first: int
    """Where the range starts in it."""
    values: Tensor
    """(any,): the elements themselves, not a copy."""
    is_written: bool
    """Whether this is the one rank that saves them, of all that have them."""


class Training(Protocol):
    """Something that trains on several ranks, as a checkpoint sees it."""

    def fingerprint(self) -> Fingerprint:
        """Returns what has to be equal in whatever loads the checkpoint."""

    def ranges(self) -> list[Range]:
        """Returns what this rank has of parameters (fp32 where trained), of their optimizer states, and buffers."""

    def states(self) -> StateKinds:
        """Returns the kinds of optimizer states that there are; the same on all ranks."""

    def options(self) -> list[dict[str, Any]]:
        """Returns the options of each parameter group, with the names of its parameters as `params`."""

    def make_states(self, kinds: StateKinds, options: Sequence[dict[str, Any]]) -> None:
        """Replaces optimizer states and options by those of a checkpoint; states of a parameter's shape come later."""

    def loss_scale(self) -> dict[str, float] | None:
        """Returns the dynamic loss scale of fp16: {value, num_good_steps}."""

    def set_loss_scale(self, scale: dict[str, float]) -> None:
        """Goes on with a loss scale, where this precision has one."""

    def settle(self) -> None:
        """Makes what the ranges were filled with what the next forward computes with, on every rank."""

    def refuse_within_step(self) -> None:
        """Raises `LaunchError` between the micro-batches of a step."""


def on_host(value: Any) -> Any:
    """Returns a copy of a tensor in host memory; other values as they are."""
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def value_key(name: str) -> str:
    """Returns the key of a parameter's or buffer's values."""
    return f"values/{name}"


def state_key(state: str, name: str) -> str:
    """Returns the key of an optimizer state of a parameter."""
    return f"states/{state}/{name}"


def whole_range(name: str, values: Tensor, rank: int) -> Range:
    """Returns all of a tensor that every rank has, and the first one writes."""
    if not values.is_contiguous():
        values.data = values.data.contiguous()
    return Range(value_key(name), values.numel(), 0, values.detach().view(-1), rank == 0)
