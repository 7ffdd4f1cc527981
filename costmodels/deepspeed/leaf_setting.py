"""Which modules DeepSpeed's stage 3 has to be told to gather whole, in the words of its configuration.

Source: `_do_set_z3_leaf_modules`, deepspeed/utils/z3_leaf_module.py, 0.19.8.
"""

from __future__ import annotations

from costmodels.workload import Workload


def leaf_setting(workload: Workload, defaults: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (classes, names) of the setting that gathers whole what has to be, beside the defaults.

    A class is named where all its modules are meant and no other class has its name, so that the setting fits a script
    of the user's that knows the class by another Python module.
    """
    leaves = frozenset(workload.leaf_modules) - frozenset(
        name for class_name, members in workload.composites if class_name in defaults for name in members
    )
    if not leaves:
        return defaults, ()
    classes: list[str] = []
    names: list[str] = []
    shorts = [class_name.rpartition(".")[2] for class_name, _ in workload.composites]
    for (_, members), short in zip(workload.composites, shorts, strict=True):
        meant = [name for name in members if name in leaves]
        if len(meant) == len(members) and shorts.count(short) == 1:
            classes.append(short)
        else:
            names += meant
    return (*defaults, *classes), tuple(names)
