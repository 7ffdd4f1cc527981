"""Says what is wrong with a workload that no trace can have made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from costmodels.workload import Parameter, Segment, Timeline, Workload

_MOST_ELEMENTS = 2**50
"""Of one parameter: a thousand times those of the largest models."""


def problem_of(workload: Workload) -> str | None:
    """Returns the first contradiction in the workload, None where it is whole."""
    for found in (_parts(workload), _parameters(workload.parameters), _segments(workload)):
        problem = next(found, None)
        if problem is not None:
            return problem
    return None


def _parts(workload: Workload) -> Iterator[str]:
    num_params = len(workload.parameters)
    owned = sorted(index for block in workload.blocks for index in block.parameters)
    if not workload.blocks or not num_params or not workload.segments:
        yield "it has no blocks, no parameters or no segments"
    if owned != list(range(num_params)):
        yield "not every parameter is in one block"
    if not all(0 <= block.block_class < len(workload.blocks) for block in workload.blocks):
        yield "a block's class is no class"
    if workload.buffer_bytes < 0 or workload.input_bytes.at(1) < 0:
        yield "buffers or the batch have fewer than no bytes"
    if not _within((index for pair in workload.linears for index in pair), num_params):
        yield "a linear operator's parameters do not exist"
    if not _within(workload.saved_views, num_params):
        yield "a parameter of which a view is saved does not exist"


def _parameters(parameters: tuple[Parameter, ...]) -> Iterator[str]:
    if len({parameter.name for parameter in parameters}) < len(parameters):
        yield "two parameters have one name"
    for parameter in parameters:
        if any(size < 0 for size in parameter.shape):
            yield f"{parameter.name} has an axis shorter than nothing"
        if parameter.num_elements > _MOST_ELEMENTS:
            yield f"{parameter.name} has {parameter.num_elements} elements"
        if parameter.expert_axis is not None and not 0 <= parameter.expert_axis < len(parameter.shape):
            yield f"{parameter.name} has no axis {parameter.expert_axis}"


def _segments(workload: Workload) -> Iterator[str]:
    phases = [segment.phase for segment in workload.segments]
    if phases != sorted(phases, reverse=True):
        yield "forward comes after backward"
    for number, segment in enumerate(workload.segments):
        problem = next(_segment(segment, workload), None)
        if problem is not None:
            yield f"segment {number} {problem}"


def _segment(segment: Segment, workload: Workload) -> Iterator[str]:
    num_params = len(workload.parameters)
    if not 0 <= segment.block < len(workload.blocks):
        yield "is of no block"
    if not _within((index for call in segment.calls for index in call.parameters), num_params):
        yield "calls parameters that do not exist"
    if not _within(segment.gradients, num_params):
        yield "completes gradients of no parameter"
    amounts = segment.flop, segment.io_bytes, segment.product_io_bytes
    if segment.num_operators < 0 or any(amount.at(2) < 0 for amount in amounts):
        yield "does less than nothing for two samples"
    recomputed = segment.recomputed
    timelines = (segment.timeline, recomputed.timeline, recomputed.again) if recomputed else (segment.timeline,)
    if not all(map(_is_ordered, timelines)):
        yield "has gradients complete at no time"


def _is_ordered(timeline: Timeline) -> bool:
    completed = timeline.completed
    return list(completed) == sorted(completed) and _within(completed, len(timeline.events) + 1)


def _within(indices: Iterable[int], end: int) -> bool:
    return all(0 <= index < end for index in indices)
