"""What the user should know of a plan that keeps states on the host, or may send other numbers than it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.strategy import Strategy
from planner.choose.candidate import Candidate
from planner.choose.setting import Setting
from planner.report.figures import bytes_text

_QUANTIZED = (
    ("quantized_weights", "parameters are gathered as int8 (qwZ)"),
    ("quantized_gradients", "gradients are reduced as int4 (qgZ)"),
)


def on_host(asked: Setting, chosen: Candidate) -> Iterator[str]:
    """Yields what lies in host memory, and how much of it there is."""
    offload = chosen.assignment[0].offload
    if offload == "none":
        return
    what = "optimizer states" if offload == "optimizer" else "optimizer states and parameters"
    if asked.profile.device.kind == "cpu":
        yield f"{what} are offloaded to the memory that the CPUs have anyway: it saves nothing here"
        return
    available_bytes = asked.profile.known_host.memory_bytes
    node_bytes = chosen.predicted.memory.host_bytes * asked.machine.ranks_per_node
    if node_bytes > available_bytes:
        yield (
            f"{what} do not fit in host memory: they need {bytes_text(node_bytes)} on each node, and "
            f"{bytes_text(available_bytes)} are there"
        )
        return
    has = f" of {bytes_text(available_bytes)}"
    yield (
        f"{what} lie in host memory, {bytes_text(node_bytes)}{has} on each node, and the host's cores update them: "
        "none of that time is counted as hidden behind compute"
    )


def lossy(asked: Setting, chosen: Candidate) -> Iterator[str]:
    """Yields what changes the numbers that the model is trained with, or why nothing does where it was allowed."""
    changed = [text for option, text in _QUANTIZED if any(getattr(strategy, option) for strategy in chosen.assignment)]
    if changed:
        yield f"lossy: {' and '.join(changed)}; the losses differ from those of exact numbers"
    elif asked.job.allow_lossy:
        yield f"--allow-lossy changes nothing: {_why_exact(asked, chosen)}"


def _why_exact(asked: Setting, chosen: Candidate) -> str:
    world_size = asked.machine.world_size
    if world_size == 1:
        return "one rank sends nothing"
    if chosen.engine != DEEPSPEED.name:
        return "no quantized plan is faster"
    quantized = replace(Strategy(world_size, world_size, world_size, world_size), quantized_weights=True)
    assignment = (quantized,) * asked.workload.num_classes
    return DEEPSPEED.refusal(asked.workload, assignment, asked.shapes[0]) or "no quantized plan is faster"
