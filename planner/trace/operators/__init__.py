"""Operators for kernels that no dispatcher sees: FlashAttention, state-space scans, fused losses and norms.

kernel        how an operator is defined            entry, registry: which Python names it stands behind
stand_in      packages that are not installed       swap: packages that are       transformers_kernels: models of its
the rest      one file for each family of kernels, with the autograd functions that keep what the real ones keep
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import fx

from planner.trace.operators.kernel import NAMESPACE, package_of
from planner.trace.operators.registry import VERSIONS, by_package
from planner.trace.operators.stand_in import stand_ins
from planner.trace.operators.swap import swapped
from planner.trace.operators.transformers_kernels import transformers_kernels

__all__ = ["operator_warnings", "registered_operators"]


@contextmanager
def registered_operators(device: Literal["cuda", "cpu"]) -> Iterator[list[str]]:
    """While on, kernel packages are answered by operators that a trace sees; on a CPU there are none.

    Yields:
        What to warn of: functions of kernel packages that were called and have no operator. It fills while on.
    """
    missing: list[str] = []
    if device == "cpu":
        yield missing
        return

    def miss(what: str) -> None:
        if what not in missing:
            missing.append(what)

    packages = by_package()
    with stand_ins(packages, VERSIONS, miss), swapped(packages), transformers_kernels(packages, miss):
        yield missing


def operator_warnings(graph: fx.Graph) -> tuple[str, ...]:
    """Returns for each package whose kernels are in the graph that they were described and not run."""
    used: dict[str, dict[str, None]] = {}
    for node in graph.nodes:
        packet = getattr(node.target, "_overloadpacket", None)
        package = None if packet is None else package_of(packet)
        if package is not None:
            used.setdefault(package, {})[str(packet).removeprefix(f"{NAMESPACE}.").removesuffix("_backward")] = None
    return tuple(
        f"{package} is taken to be installed where the model trains; its kernels ({', '.join(names)}) were not run: "
        "memory and FLOPs follow its source"
        for package, names in used.items()
    )
