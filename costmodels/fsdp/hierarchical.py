"""The messages of a collective that goes level by level, and what a rank holds between them.

A group between degrees a and b spans levels that end at a = d_0 < d_1 < ... < d_m = b. With B bytes in all:

    all-gather       d_{k-1} to d_k    B a / d_{k-1}    for k = m, ..., 1
    reduce-scatter   d_{k-1} to d_k    B a / d_{k-1}    for k = 1, ..., m
    all-reduce       a reduce-scatter for k = 1, ..., m-1; an all-reduce of B a / d_{m-1} between d_{m-1} and b; and
                     all-gathers for k = m-1, ..., 1

so that a link of an outer level carries what its ranks have not, once, and start-ups are those of one level at a time.
An all-reduce pads its elements to a multiple of d_{m-1} / a.

Source: `runtime.fsdp.hierarchical`, which does it; MiCS (arXiv 2205.00119) section 3.3; PaRO (arXiv 2310.06003).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from costmodels.engine import Message

__all__ = ["between_stages_bytes", "stages", "stops_between"]


def stops_between(inner: int, outer: int, level_sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns the degrees from `inner` to `outer` at which levels end, both of them included.

    Args:
        inner: a.
        outer: b, a multiple of a.
        level_sizes: of the machine, inner first; none: one stage for all.
    """
    stops = [inner]
    end = 1
    for size in level_sizes:
        end *= size
        if inner < end < outer and end % stops[-1] == 0 and outer % end == 0:
            stops.append(end)
    return (*stops, outer)


def stages(message: Message, level_sizes: Sequence[int], element_bytes: int) -> Iterator[Message]:
    """Yields the messages that one is sent as, in order; the message itself where its group spans one level.

    Args:
        message: an all-gather, a reduce-scatter or an all-reduce.
        level_sizes: of the machine, inner first; none: it is sent at once.
        element_bytes: of what it carries.
    """
    stops = stops_between(message.degree_from, message.degree_to, level_sizes)
    if len(stops) < 3:
        yield message
        return
    if message.operation != "all_reduce":
        parts = [_part(message, *span) for span in pairwise(stops)]
        yield from reversed(parts) if message.operation == "all_gather" else parts
        return
    num_inner = stops[-2] // stops[0]
    padded_bytes = -(-message.message_bytes // (num_inner * element_bytes)) * num_inner * element_bytes
    padded = replace(message, message_bytes=padded_bytes)
    inside = list(pairwise(stops[:-1]))
    yield from (replace(_part(padded, *span), operation="reduce_scatter") for span in inside)
    yield _part(padded, stops[-2], stops[-1])
    yield from (replace(_part(padded, *span), operation="all_gather") for span in reversed(inside))


def _part(message: Message, inner: int, outer: int) -> Message:
    num_bytes = message.message_bytes * message.degree_from // inner
    return replace(message, degree_from=inner, degree_to=outer, message_bytes=num_bytes)


def between_stages_bytes(message: Message, level_sizes: Sequence[int], element_bytes: int) -> int:
    """Returns what a rank holds beside a message and its result while it goes from one level to the next, at most."""
    messages = list(stages(message, level_sizes, element_bytes))
    if len(messages) == 1:
        return 0
    if message.operation == "all_reduce":
        # Its stages take parts of the message itself, or of a copy where it is padded.
        padded_bytes = messages[0].message_bytes
        return padded_bytes if padded_bytes > message.message_bytes else 0
    return sorted(each.message_bytes for each in messages)[-2]
