"""Leaf modules: those that DeepSpeed's stage 3 gathers whole, with all beneath them, and hooks as if nothing were.

It needs them where ranks may call different modules: experts that are modules of their own, each called where its
tokens are. A rank that does not call an expert would not take part in gathering it, and the others would wait.

Source: deepspeed/utils/z3_leaf_module.py and deepspeed/runtime/zero/leaf_module_config.py, 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from costmodels.deepspeed.knobs import Knobs
from costmodels.workload import Workload


def leaves_of(workload: Workload, knobs: Knobs) -> dict[str, tuple[int, ...]]:
    """Returns the modules that are gathered whole, each with its parameters; none within another.

    A setting names classes (with their Python module or without), modules, or endings of modules' names. Of modules
    without children only the names are known here, not the classes.
    """
    return _leaves_of(workload, knobs.leaf_classes, knobs.leaf_names, knobs.leaf_name_suffixes)


@lru_cache(maxsize=32)
def _leaves_of(
    workload: Workload, classes: tuple[str, ...], names: tuple[str, ...], suffixes: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    marked: dict[str, None] = {}
    for class_name, members in workload.composites:
        if class_name in classes or class_name.rpartition(".")[2] in classes:
            marked |= dict.fromkeys(members)
    for module in _modules(workload):
        if module in names or any(module.endswith(suffix) for suffix in suffixes):
            marked[module] = None
    return {
        name: tuple(
            index
            for index, parameter in enumerate(workload.parameters)
            if any(own.startswith(f"{name}.") for own in (parameter.name, *parameter.aliases))
        )
        for name in marked
        if not any(name.startswith(f"{outer}.") for outer in marked)
    }


def _modules(workload: Workload) -> Iterator[str]:
    seen: dict[str, None] = dict.fromkeys(name for _, members in workload.composites for name in members)
    seen |= dict.fromkeys(call.module for segment in workload.segments for call in segment.calls)
    yield from seen
