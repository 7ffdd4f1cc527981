"""Says why nothing fits, in numbers, and what would help: each suggestion was checked by evaluating it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from costmodels.states import state_widths
from hw_profiles.errors import ProfileError
from hw_profiles.resize import resize
from hw_profiles.schema import HardwareProfile
from planner.choose.batches import nearest_batches
from planner.choose.candidate import Candidate, as_alternative
from planner.choose.setting import Setting, setting
from planner.errors import BatchError, InputError
from planner.job import Job
from planner.machine import machine
from planner.model_graph import ModelGraph
from planner.plan import Infeasible
from planner.report.figures import bytes_text

MAX_RANKS = 2**16
"""No larger machine is suggested."""

Smallest = Callable[[Setting], Candidate]
"""Returns the strategy that needs the least memory in a setting."""


def infeasible(asked: Setting, smallest: Smallest) -> Infeasible:
    """Returns how far the nearest strategy is from fitting, and what would make one fit.

    Args:
        asked: The question that has no answer.
        smallest: Finds the strategy of least memory; called for every suggestion that is checked.
    """
    nearest = smallest(asked)
    needed_bytes = nearest.predicted.memory.peak_bytes
    return Infeasible(
        model_name=asked.graph.name,
        hardware_name=asked.profile.name,
        world_size=asked.machine.world_size,
        needed_bytes=needed_bytes,
        available_bytes=asked.budget_bytes,
        nearest=as_alternative(asked.workload, nearest, _verdict(asked, nearest)),
        suggestions=tuple(_suggestions(asked, nearest, smallest)),
    )


def illegal(graph: ModelGraph, profile: HardwareProfile, job: Job, error: BatchError) -> Infeasible:
    """Returns that no step is legal on this machine, whatever the memory: nothing is needed of it."""
    return Infeasible(
        model_name=graph.name,
        hardware_name=profile.name,
        world_size=profile.world_size,
        needed_bytes=0,
        available_bytes=job.memory_budget_bytes or machine(profile, job.precision).usable_bytes,
        nearest=None,
        suggestions=(),
        reason=str(error),
    )


def message(found: Infeasible) -> str:
    """Returns the text for people: how much is needed, what there is, what to try."""
    if found.nearest is None:
        return found.reason or "no step is legal"
    lines = [
        f"nothing fits: {found.model_name} on {found.world_size} ranks of {found.hardware_name} needs "
        f"{bytes_text(found.needed_bytes)} per rank at least, and {bytes_text(found.available_bytes)} are available",
        f"nearest: {found.nearest.name} at micro-batch {found.nearest.micro_batch_size}, {found.nearest.verdict}",
    ]
    lines += [f"try: {suggestion}" for suggestion in found.suggestions]
    return "\n".join(lines)


def _verdict(asked: Setting, nearest: Candidate) -> str:
    memory = nearest.predicted.memory
    amounts = [(name.replace("_", " "), amount) for name, amount in memory.components if amount]
    sums = " + ".join(f"{name} {bytes_text(amount)}" for name, amount in amounts)
    over_bytes = memory.peak_bytes - asked.budget_bytes
    return f"{sums} = {bytes_text(memory.peak_bytes)} ({memory.peak_phase}), {bytes_text(over_bytes)} too much"


def _suggestions(asked: Setting, nearest: Candidate, smallest: Smallest) -> Iterator[str]:
    yield from _smaller_work(asked, smallest)
    yield from _more_nodes(asked, smallest)
    needed_bytes = nearest.predicted.memory.peak_bytes
    if needed_bytes <= asked.machine.usable_bytes:
        yield f"--memory-budget {needed_bytes}: {bytes_text(needed_bytes)} per rank, which the device has"
    yield _offload(asked)


def _smaller_work(asked: Setting, smallest: Smallest) -> Iterator[str]:
    """Yields what the job itself could change, where that is enough."""
    job = asked.job
    if job.recompute == "none" and _fits(asked.graph, asked, {"recompute": "auto"}, smallest):
        yield "--recompute auto: with recomputation it fits"
    if job.micro_batch_size not in (None, 1) and _fits(asked.graph, asked, {"micro_batch_size": 1}, smallest):
        yield "--micro-batch-size 1: with fewer samples at once it fits"
    if job.precision == "fp32" and "bf16" in asked.profile.known_device.peak_flop_per_s:
        # Activations as traced in fp32 bound those in bf16 from above.
        graph = asked.graph.model_copy(update={"precision": "bf16"})
        if _fits(graph, asked, {"precision": "bf16"}, smallest):
            yield "--precision bf16: with half the bytes it fits"


def _fits(graph: object, asked: Setting, changes: dict[str, object], smallest: Smallest) -> bool:
    job = asked.job.model_copy(update=changes)
    return smallest(setting(graph, asked.profile, job)).fits  # type: ignore[arg-type]


def _more_nodes(asked: Setting, smallest: Smallest) -> Iterator[str]:
    """Yields the smallest number of nodes on which something fits: found by doubling, then by halving the interval."""
    low = asked.profile.num_nodes
    high = low
    while True:
        high *= 2
        larger = _larger(asked, high)
        if larger is None:
            return
        if smallest(larger).fits:
            break
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        larger = _larger(asked, middle)
        if larger is not None and smallest(larger).fits:
            high = middle
        else:
            low = middle
    yield _nodes_text(asked, high)


def _larger(asked: Setting, num_nodes: int) -> Setting | None:
    """Returns the same question on more nodes at the smallest micro-batch, or None where there is no such machine."""
    profile = _resized(asked.profile, num_nodes)
    if profile is None:
        return None
    size = asked.shapes[0].micro_batch_size
    # The batch of one micro-batch per rank: memory does not depend on how many follow.
    job = asked.job.model_copy(
        update={
            "micro_batch_size": size,
            "global_batch_size": size * profile.world_size,
        }
    )
    try:
        return setting(asked.graph, profile, job)
    except InputError:
        return None


def _resized(profile: HardwareProfile, num_nodes: int) -> HardwareProfile | None:
    if num_nodes * profile.ranks_per_node > MAX_RANKS:
        return None
    try:
        return resize(profile, num_nodes)
    except ProfileError:
        return None


def _nodes_text(asked: Setting, num_nodes: int) -> str:
    num_ranks = num_nodes * asked.profile.ranks_per_node
    text = f"--nodes {num_nodes}: {num_ranks} ranks are the fewest on which it fits"
    batch = asked.job.global_batch_size
    unit = num_ranks * asked.shapes[0].micro_batch_size
    if batch % unit:
        nearest = " or ".join(str(each) for each in nearest_batches(batch, unit))
        text += f", with --global-batch-size {nearest} ({batch} is no multiple of {unit})"
    return text


def _offload(asked: Setting) -> str:
    """Returns what offload would move; this version cannot plan it, so nothing is promised."""
    widths = state_widths(asked.job.precision, asked.job.optimizer)
    states_bytes = widths.optimizer * asked.workload.num_trainable_params
    node_bytes = states_bytes * asked.machine.ranks_per_node // asked.machine.world_size
    host = asked.profile.host
    has = "of unknown memory" if host is None else f"which has {bytes_text(host.memory_bytes)}"
    return (
        f"optimizer states in host memory would need {bytes_text(node_bytes)} on each node, {has}; this version does "
        "not plan offload"
    )


def at_smallest_batch(asked: Setting) -> Setting:
    """Returns the question with its smallest micro-batch alone: where least memory is needed."""
    return replace(asked, shapes=asked.shapes[:1])
