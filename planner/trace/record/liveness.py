"""When memory was live, as an allocator would see it in real training."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from planner.trace.record.recording import UNTRACKED, MemoryEvent, Recording

aten = torch.ops.aten


def memory_events(recording: Recording) -> Iterator[tuple[MemoryEvent, bool]]:
    """Yields the events of all storages in order of time, and whether each is of a parameter's gradient.

    Where two gradients meet, autograd adds the second to the first in place when nobody else holds the first
    (Source: torch 2.13, torch/csrc/autograd/input_buffer.cpp, accumulate), but never for fake tensors: such sums are
    recognized by a first operand that dies with the sum, and counted as in place. A view is held by what it views.
    """
    merged = _sums_in_place(recording)
    dropped = {(operand, index) for operand, (_, index) in merged.items()}
    born_as_sum = {result for result, _ in merged.values()}
    for event in recording.events:
        is_end_of_operand = event.delta_bytes < 0 and (event.storage, event.operator) in dropped
        is_birth_of_sum = event.delta_bytes > 0 and event.storage in born_as_sum
        if not is_end_of_operand and not is_birth_of_sum:
            last = event.storage
            while last in merged:
                last = merged[last][0]
            yield event, last in recording.gradients


def all_events(recording: Recording) -> list[MemoryEvent]:
    """Returns the events of all storages, those of gradients of parameters too."""
    return [event for event, _ in memory_events(recording)]


def peak_bytes(events: list[MemoryEvent]) -> int:
    """Returns the greatest number of bytes live at once."""
    live = peak = 0
    for event in events:
        live += event.delta_bytes
        peak = max(peak, live)
    return peak


def _sums_in_place(recording: Recording) -> dict[int, tuple[int, int]]:
    """Returns for each first operand of such a sum the storage of the sum and the operator's index."""
    births = {event.storage: event for event in recording.events if event.delta_bytes > 0}
    deaths = {event.storage: event.operator for event in recording.events if event.delta_bytes < 0}
    merged: dict[int, tuple[int, int]] = {}
    for node in recording.graph.nodes:
        if node.target is not aten.add.Tensor or node.meta["phase"] != "backward" or _is_view(node.args[0]):
            continue
        operand, result, index = node.args[0].meta["storage"], node.meta["storage"], node.meta["index"]
        if UNTRACKED in (operand, result) or deaths.get(operand) != index or births[result].operator != index:
            continue
        if births[operand].delta_bytes == births[result].delta_bytes:
            merged[operand] = (result, index)
    return merged


def _is_view(node: fx.Node) -> bool:
    return bool(getattr(node.meta.get("part_of", node).target, "is_view", False))
