"""Why DeepSpeed 0.19.8 cannot run a strategy, in words for the user."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from costmodels.deepspeed.knobs import Knobs, stage_of
from costmodels.deepspeed.leaf_setting import leaf_setting
from costmodels.deepspeed.leaves import leaves_of
from costmodels.deepspeed.rules import Case, broken
from costmodels.engine import Assignment
from costmodels.strategy import StepShape
from costmodels.workload import Workload


def refusal(workload: Workload, assignment: Assignment, shape: StepShape) -> str | None:
    """Returns the first reason that applies, or None when DeepSpeed runs the assignment."""
    if not assignment:
        return "there is no block to shard"
    if workload.num_trainable_params == 0:
        return "nothing is trainable: there is no step to plan"
    return _about_degrees(assignment, shape.world_size) or _about_options(workload, assignment, shape)


def refusal_of_knobs(workload: Workload, knobs: Knobs) -> str | None:
    """Returns why DeepSpeed cannot train the model with these settings, or None when it can.

    Source: ranks that call different modules end in `assert_ints_same_as_other_ranks`,
    deepspeed/runtime/zero/utils.py, 0.19.8.
    """
    leaves = leaves_of(workload, knobs)
    lacking = [name for name in workload.leaf_modules if not _is_within(name, leaves)]
    if knobs.stage < 3 or not lacking:
        return None
    classes, names = leaf_setting(workload, knobs.leaf_classes)
    entries = {"classes": list(classes), "names": list(names)}
    written = ", ".join(f'"{key}": {_quoted(value)}' for key, value in entries.items() if value)
    return (
        f"stage 3 needs {lacking[0]} gathered whole, since its experts are called where their tokens are, on each rank "
        f'others: write "leaf_module": {{{written}}} into zero_optimization'
    )


def _is_within(name: str, leaves: Iterable[str]) -> bool:
    return any(name == leaf or name.startswith(f"{leaf}.") for leaf in leaves)


def _quoted(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _about_degrees(assignment: Assignment, world_size: int) -> str | None:
    different = tuple(dict.fromkeys(assignment))
    if len({(strategy.degrees, strategy.secondary_degree) for strategy in different}) > 1:
        return "DeepSpeed has one set of degrees for the whole model"
    if len({(each.offload, each.quantized_weights, each.quantized_gradients) for each in different}) > 1:
        return "DeepSpeed offloads and quantizes for the whole model or not at all"
    if stage_of(different, world_size) is not None:
        return None
    strategy = assignment[0]
    if strategy.param_degree == world_size and 1 < strategy.secondary_degree < world_size:
        return (
            f"hpZ needs (N,N,N) and a secondary degree that divides the world size: {strategy.secondary_degree} does "
            f"not go with {strategy.degrees} on {world_size} ranks"
        )
    return (
        f"DeepSpeed has no stage with degrees {strategy.degrees} and secondary degree {strategy.secondary_degree} on "
        f"{world_size} ranks: its degrees are 1 or {world_size} (stages 0 to 3)"
    )


def _about_options(workload: Workload, assignment: Assignment, shape: StepShape) -> str | None:
    stage = stage_of(assignment, shape.world_size)
    assert stage is not None, "degrees come first"
    reason = next(broken(Case(workload, assignment, shape, stage)), None)
    if reason is not None:
        return reason
    if shape.precision == "fp16" and shape.device == "cpu":
        return "DeepSpeed 0.19.8 refuses fp16 on CPUs ('Type fp16 is not supported on your device'): use bf16"
    empty, scalars = _hard_to_shard(workload)
    if empty:
        return f"DeepSpeed cannot shard a parameter without elements: {empty[0]}"
    if scalars and stage == 3:
        return (
            f"DeepSpeed 0.19.8 cannot shard a parameter without dimensions (stage 3): {scalars[0]}; give it the shape "
            "(1,), or shard less"
        )
    return None


@lru_cache(maxsize=16)
def _hard_to_shard(workload: Workload) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the parameters without elements, and of those without dimensions."""
    return (
        tuple(parameter.name for parameter in workload.parameters if parameter.num_elements == 0),
        tuple(parameter.name for parameter in workload.parameters if not parameter.shape),
    )
