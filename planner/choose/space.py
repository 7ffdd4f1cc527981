"""The search space: every strategy of the engine that this version runs, with its costs."""

from __future__ import annotations

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.degrees import strategies
from costmodels.strategy import Strategy
from planner.choose.compete import table_of
from planner.choose.setting import Setting
from planner.choose.variants import on_host, variants
from planner.cost_table import CostTable
from planner.errors import InputError


def space(asked: Setting) -> CostTable:
    """Returns the costs of all that DeepSpeed can choose: strategies x micro-batches x recomputation.

    Raises:
        InputError: It can run nothing of the space, or another engine is asked for.
    """
    if asked.job.engine == "fsdp":
        raise InputError(
            "a Pareto front is of DeepSpeed's strategies, and the fsdp engine chooses by class of blocks: use --engine "
            "deepspeed, or leave --pareto out"
        )
    return on_host(asked, table_of(asked, DEEPSPEED, _strategies(asked)))


def _strategies(asked: Setting) -> tuple[Strategy, ...]:
    """Returns every strategy that DeepSpeed has on this machine.

    Raises:
        InputError: It has none, for a reason that is the same for all, such as a model with nothing to train.
    """
    num_classes = asked.workload.num_classes
    every = variants(asked, strategies(asked.machine.level_sizes))
    refusals = [DEEPSPEED.refusal(asked.workload, (each,) * num_classes, asked.shapes[0]) for each in every]
    able = tuple(each for each, refusal in zip(every, refusals, strict=True) if refusal is None)
    if not able:
        raise InputError(f"DeepSpeed cannot train this: {refusals[0]}")
    return able
