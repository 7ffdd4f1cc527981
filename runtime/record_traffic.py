"""Records what a rank really sends, at torch's dispatcher: every c10d operation with its tensors and its group.

Works below DeepSpeed, FSDP and torch.distributed alike, since all of them end in c10d operations. The recorder is a
`TorchDispatchMode`; autograd carries it into its worker threads, so that what hooks send in a CUDA backward is seen
too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]
from torch.utils._python_dispatch import TorchDispatchMode

_OPERATIONS = {
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "reduce_": "reduce",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
}
"""The names of torch 2.13's c10d and _c10d_functional operators."""

_SILENT = frozenset({"barrier", "monitored_barrier_", "check_for_nan", "wait_tensor"})
"""Operators that carry no tensor of the user's."""


@dataclass(frozen=True, slots=True, order=True)
class RecordedMessage:
    """One message of this rank. Its group: the ranks of equal r mod degree_from inside one block of degree_to."""

    operation: str
    degree_from: int
    degree_to: int
    message_bytes: int
    """The full tensor, before sharding: the output of an all-gather, the input of a reduce-scatter."""


@dataclass(frozen=True, slots=True, order=True)
class RecordedTraffic:
    """All messages of one operation over one kind of group."""

    operation: str
    degree_from: int
    degree_to: int
    bytes: int
    count: int


class RecordTraffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager: `with RecordTraffic() as recorder: step()`, then `recorder.messages` or `recorder.totals()`.

    Barriers and groups of one rank are not traffic. The mode slows every operator down: record steps that nobody times.
    """

    messages: list[RecordedMessage]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.messages = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator and notes it when it is a message.

        Raises:
            ValueError: A point-to-point operation, or a group that is not "between two degrees".
        """
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func.overloadpacket.__name__
            if name not in _SILENT:
                self._note(name, args, result)
        return result

    def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name not in _OPERATIONS:
            raise ValueError(f"{name} is not an operation that a plan knows: only collectives are recorded")
        ranks = _ranks(args)
        if len(ranks) < 2:
            return
        # Whichever side is larger is the full message: a gather's output, a reduce-scatter's input.
        size = max(_num_bytes(value) for value in (*args, result))
        self.messages.append(RecordedMessage(_OPERATIONS[name], *degrees_of(ranks), size))

    def totals(self) -> tuple[RecordedTraffic, ...]:
        """Returns bytes and counts by (operation, degree_from, degree_to), sorted."""
        size: Counter[tuple[str, int, int]] = Counter()
        count: Counter[tuple[str, int, int]] = Counter()
        for message in self.messages:
            key = (message.operation, message.degree_from, message.degree_to)
            size[key] += message.message_bytes
            count[key] += 1
        return tuple(RecordedTraffic(*key, size[key], count[key]) for key in sorted(count))


def degrees_of(ranks: Sequence[int]) -> tuple[int, int]:
    """Returns (a, b) such that `ranks` are those of equal r mod a inside one block of b ranks.

    Raises:
        ValueError: The ranks are not spaced evenly, or cross the border of a block.
    """
    ordered = sorted(ranks)
    stride = ordered[1] - ordered[0]
    block = stride * len(ordered)
    first = ordered[0]
    if ordered != list(range(first, first + block, stride)) or first % block >= stride:
        raise ValueError(f"a group of ranks {ordered} does not run between two degrees")
    return stride, block


def _ranks(args: tuple[Any, ...]) -> list[int]:
    """Returns the global ranks of the group among an operator's arguments: an object, or a name as the last string."""
    for value in args:
        if isinstance(value, torch.ScriptObject):
            try:
                return dist.get_process_group_ranks(dist.ProcessGroup.unbox(value))
            except (RuntimeError, TypeError):
                continue  # another class, such as the ReduceOp
        if isinstance(value, dist.ProcessGroup):
            return dist.get_process_group_ranks(value)
    names = [value for value in args if isinstance(value, str)]
    return dist.get_process_group_ranks(_resolve_process_group(names[-1]))  # type: ignore[arg-type]


def _num_bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
