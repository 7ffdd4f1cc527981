"""The search space of DeepSpeed: every strategy that it has, with its costs."""

from __future__ import annotations

from functools import partial

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.deepspeed.knobs import stage_of
from costmodels.degrees import strategies
from costmodels.strategy import Strategy
from planner.choose.compete import smallest_table_of, table_of
from planner.choose.setting import Setting
from planner.choose.variants import check_host, has_host_room, variants
from planner.cost_table import CostTable
from planner.errors import InputError


def whole_space(asked: Setting) -> CostTable:
    """Returns the costs of all that DeepSpeed can choose: strategies x micro-batches x recomputation.

    Raises:
        InputError: It can run nothing of the space, or another engine is asked for.
    """
    return table_of(asked, DEEPSPEED, _strategies(asked), has_room=partial(has_host_room, asked))


def space(asked: Setting) -> CostTable:
    """Returns the same without what does not fit, which is only counted; raises what `whole_space` does."""
    return table_of(asked, DEEPSPEED, _strategies(asked), asked.budget_bytes, partial(has_host_room, asked))


def smallest_space(asked: Setting) -> CostTable:
    """Returns the same without what needs more memory than some other choice; raises what `whole_space` does."""
    return smallest_table_of(asked, DEEPSPEED, _strategies(asked), partial(has_host_room, asked))


def _strategies(asked: Setting) -> tuple[Strategy, ...]:
    """Returns every strategy that DeepSpeed has on this machine.

    Raises:
        InputError: It has none, for a reason that is the same for all, such as a model with nothing to train.
        HostError: The job asks for offload, and no node's host can hold what that would move.
    """
    if asked.job.engine == "fsdp":
        raise InputError(
            "a Pareto front is of DeepSpeed's strategies, and the fsdp engine chooses by class of blocks: use --engine "
            "deepspeed, or leave --pareto out"
        )
    num_classes = asked.workload.num_classes
    every, world_size = strategies(asked.machine.level_sizes), asked.machine.world_size
    # Thousands of degrees, of which DeepSpeed has a dozen: what else a strategy can be multiplies these alone.
    native = variants(asked, (each for each in every if _has_stage(each, world_size)))
    able = tuple(
        each for each in native if DEEPSPEED.refusal(asked.workload, (each,) * num_classes, asked.shapes[0]) is None
    )
    if not able:
        first = variants(asked, every[:1])[0]
        reason = DEEPSPEED.refusal(asked.workload, (first,) * num_classes, asked.shapes[0])
        raise InputError(f"DeepSpeed cannot train this: {reason}")
    check_host(asked, able)
    return able


def _has_stage(strategy: Strategy, world_size: int) -> bool:
    return world_size == 1 or stage_of((strategy,), world_size) is not None
