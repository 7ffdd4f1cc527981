"""Says what would make a plan fit, the cheapest change first; each was checked by evaluating it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from costmodels.degrees import divisors
from costmodels.states import state_widths
from costmodels.strategy import Precision
from hw_profiles.errors import ProfileError
from hw_profiles.resize import resize
from planner.choose.batches import nearest_batches
from planner.choose.candidate import Candidate
from planner.choose.setting import Setting, setting
from planner.errors import InputError
from planner.model_graph import ModelGraph
from planner.report.figures import bytes_text

MAX_RANKS = 2**16
"""No larger machine is suggested."""

_LOWER_PRECISIONS: dict[Precision, tuple[Precision, ...]] = {"fp32": ("bf16", "fp16"), "bf16": (), "fp16": ()}

Smallest = Callable[[Setting], Candidate]
"""Returns the strategy that needs the least memory in a setting."""


def suggestions(asked: Setting, needed_bytes: int, smallest: Smallest) -> Iterator[str]:
    """Yields what would help, of each kind the smallest change that is enough alone; the cheapest kind first.

    Recomputation, a smaller micro-batch and offload cost time, a larger budget safety, a lower precision digits, more
    nodes money. What host memory would have to hold comes last, with no promise, where nothing is known of the host.
    Quantized collectives are not among them: they save time on the wire and no memory.

    Args:
        asked: The question that has no answer.
        needed_bytes: The least memory per rank that any strategy needs.
        smallest: Finds the strategy of least memory; called for every change that is checked.
    """
    yield from _recomputation(asked, smallest)
    yield from _smaller_micro_batch(asked, smallest)
    yield from _offload(asked, smallest)
    if needed_bytes <= asked.machine.usable_bytes:
        yield f"--memory-budget {needed_bytes}: {bytes_text(needed_bytes)} per rank, which the device has"
    yield from _lower_precision(asked, smallest)
    yield from _more_nodes(asked, smallest)
    yield from _unknown_host(asked)


def _recomputation(asked: Setting, smallest: Smallest) -> Iterator[str]:
    if asked.job.recompute == "none" and _fits(asked.graph, asked, {"recompute": "auto"}, smallest):
        yield "--recompute auto: with recomputation it fits"


def _smaller_micro_batch(asked: Setting, smallest: Smallest) -> Iterator[str]:
    """Yields the largest smaller micro-batch that is legal and fits."""
    given = asked.job.micro_batch_size
    if given is None:
        return
    for size in reversed(divisors(asked.job.global_batch_size // asked.machine.world_size)):
        if size < given and _fits(asked.graph, asked, {"micro_batch_size": size}, smallest):
            yield f"--micro-batch-size {size}: with fewer samples at once it fits"
            return


def _lower_precision(asked: Setting, smallest: Smallest) -> Iterator[str]:
    for precision in _LOWER_PRECISIONS[asked.job.precision]:
        if precision in asked.profile.known_device.matmul_flop_per_s:
            # Activations as traced in fp32 bound those in a shorter type from above.
            graph = asked.graph.model_copy(update={"precision": precision})
            if _fits(graph, asked, {"precision": precision}, smallest):
                yield f"--precision {precision}: with shorter numbers it fits"
                return


def _fits(graph: ModelGraph, asked: Setting, changes: dict[str, object], smallest: Smallest) -> bool:
    return smallest(setting(graph, asked.profile, asked.job.model_copy(update=changes))).fits


def _more_nodes(asked: Setting, smallest: Smallest) -> Iterator[str]:
    """Yields the smallest number of nodes on which something fits: found by doubling, then by halving the interval."""
    low = high = asked.profile.num_nodes
    batches: tuple[int, ...] | None = ()
    while not batches:
        if high == 8 * asked.profile.num_nodes and _fitting_batches(asked, _most_nodes(asked), smallest) == ():
            return  # what is not sharded is too much already
        low, high = high, 2 * high
        batches = _fitting_batches(asked, high, smallest)
        if batches is None:
            return
    while high - low > 1:
        middle = (low + high) // 2
        fewer = _fitting_batches(asked, middle, smallest)
        if fewer:
            high, batches = middle, fewer
        else:
            low = middle
    yield _nodes_text(asked, high, batches)


def _most_nodes(asked: Setting) -> int:
    """Returns the most nodes that doubling leads to."""
    doublings = (MAX_RANKS // asked.machine.world_size).bit_length() - 1
    return asked.profile.num_nodes << max(0, doublings)


def _fitting_batches(asked: Setting, num_nodes: int, smallest: Smallest) -> tuple[int, ...] | None:
    """Returns the job's global batch if it fits on so many nodes, of the nearest legal ones those that do.

    Empty if none does, None where there is no such machine.
    """
    if num_nodes * asked.profile.ranks_per_node > MAX_RANKS:
        return None
    try:
        profile = resize(asked.profile, num_nodes)
    except ProfileError:
        return None
    batch, unit = asked.job.global_batch_size, profile.world_size * (asked.job.micro_batch_size or 1)
    legal = nearest_batches(batch, unit) if batch % unit else (batch,)
    larger = replace(asked, profile=profile)
    return tuple(each for each in legal if _fits(asked.graph, larger, {"global_batch_size": each}, smallest))


def _nodes_text(asked: Setting, num_nodes: int, batches: tuple[int, ...]) -> str:
    num_ranks = num_nodes * asked.profile.ranks_per_node
    text = f"--nodes {num_nodes}: {num_ranks} ranks are the fewest on which it fits"
    batch = asked.job.global_batch_size
    if batch not in batches:
        unit = num_ranks * (asked.job.micro_batch_size or 1)
        text += f", with --global-batch-size {' or '.join(map(str, batches))} ({batch} is no multiple of {unit})"
    return text


def _offload(asked: Setting, smallest: Smallest) -> Iterator[str]:
    """Yields the least offload that is enough, with the host memory that it takes; a CPU's host is the device."""
    if asked.job.offload != "none" or asked.profile.host is None or asked.profile.device.kind == "cpu":
        return
    for offload in ("optimizer", "auto"):
        try:
            changed = setting(asked.graph, asked.profile, asked.job.model_copy(update={"offload": offload}))
            found = smallest(changed)
        except InputError:
            continue  # the nodes' hosts are too small for it
        if found.fits:
            what = "optimizer states" if offload == "optimizer" else "optimizer states and parameters"
            host = _host_text(changed, found.predicted.memory.host_bytes)
            yield f"--offload {offload}: with {what} in host memory it fits, {host}"
            return


def _host_text(asked: Setting, host_bytes: int) -> str:
    has = "" if asked.machine.host_bytes is None else f" of {bytes_text(_of_node(asked, asked.machine.host_bytes))}"
    return f"{bytes_text(_of_node(asked, host_bytes))}{has} on each node"


def _of_node(asked: Setting, rank_bytes: int) -> int:
    return rank_bytes * asked.machine.ranks_per_node


def _unknown_host(asked: Setting) -> Iterator[str]:
    """Yields what offload would move, where nothing is known of the host: nothing is promised."""
    if asked.profile.host is not None or asked.profile.device.kind == "cpu":
        return
    widths = state_widths(asked.job.precision, asked.job.optimizer)
    states_bytes = widths.optimizer * asked.workload.num_trainable_params
    node_bytes = states_bytes * asked.machine.ranks_per_node // asked.machine.world_size
    yield (
        f"optimizer states in host memory would need {bytes_text(node_bytes)} on each node, of unknown memory: a "
        "profile that has the host says whether it fits"
    )
