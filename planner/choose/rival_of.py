"""Evaluates a strategy that was not chosen from all sides: each micro-batch, other engines, what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.degrees import why_illegal
from costmodels.fsdp import FSDP
from costmodels.strategy import Offload, StepShape, Strategy
from planner.choose.candidate import Candidate, strategy_of
from planner.choose.compete import best, candidate, smallest, table_of
from planner.choose.fixed import check_legal, engine_of, plan_of_table
from planner.choose.larger import larger
from planner.choose.nearest import option_text
from planner.choose.setting import Setting
from planner.choose.suggestions import suggestions
from planner.choose.systems import name_of, systems
from planner.cost_table import CostTable
from planner.explain.explanation import AtMicroBatch
from planner.explain.retrace import retrace
from planner.explain.rival import Rival
from planner.plan import Plan, Predicted
from planner.report.figures import bytes_in, bytes_unit, seconds_text


def rival_of(asked: Setting, strategy: Strategy, chosen: Plan) -> Rival:
    """Returns a strategy at its best, and what tells why it is not the plan.

    Args:
        asked: The plan's model, machine, batch and budget; its micro-batch and recomputation are free.
        strategy: The same for all blocks.
        chosen: The plan.

    Raises:
        InputError: Degrees that are no point of the machine's search space, or that no engine has.
    """
    check_legal(asked, strategy)
    # It is looked at without offload, which is then among what would make it fit; and on the plan's engine where that
    # has it: fsdp has all of them, DeepSpeed a few.
    engine_name = "fsdp" if chosen.engine == FSDP.name else "auto"
    asked = replace(asked, job=asked.job.model_copy(update={"offload": "none", "engine": engine_name}))
    engine = engine_of(asked, strategy)
    table = table_of(asked, engine, (strategy,))
    found = plan_of_table(asked, engine, strategy, table)
    memory = found.predicted.memory
    return Rival(
        best=found,
        micro_batches=tuple(_at(asked, table, shape) for shape in asked.shapes),
        refusal=DEEPSPEED.refusal(asked.workload, (strategy,) * asked.workload.num_classes, asked.shapes[0]),
        chosen_ideally=None if found.engine == chosen.engine else _ideally(asked, chosen),
        is_current=retrace(chosen, asked.graph, asked.machine) is not None,
        would_fit=tuple(_would_fit(asked, strategy, memory.peak_bytes))
        if memory.peak_bytes > asked.budget_bytes
        else (),
    )


def _at(asked: Setting, table: CostTable, shape: StepShape) -> AtMicroBatch:
    found = best(table.where(lambda option: option.shape == shape))
    assignment = table.assignment(found.option.strategy, found.recomputed)
    peak_bytes = found.option.peak_bytes(found.recomputed)
    return AtMicroBatch(
        micro_batch_size=shape.micro_batch_size,
        num_micro_batches=shape.num_micro_batches,
        num_recomputed=sum(
            block.recomputable and assignment[block.block_class].recompute == "full" for block in asked.workload.blocks
        ),
        step_s=found.option.step_ns(found.recomputed) / 1e9,
        peak_bytes=peak_bytes,
        fits=peak_bytes <= asked.budget_bytes,
    )


def _ideally(asked: Setting, chosen: Plan) -> Predicted | None:
    """Returns the plan's strategy on the fsdp engine, at its best; None where that does not have it."""
    points = {replace(strategy_of(each), recompute="none") for each in chosen.strategies}
    if len(points) > 1 or chosen.engine == FSDP.name:
        return None
    strategy = points.pop()
    refused = FSDP.refusal(asked.workload, (strategy,) * asked.workload.num_classes, asked.shapes[0])
    return None if refused else _least_time(asked, strategy).predicted


def _least_time(asked: Setting, strategy: Strategy) -> Candidate:
    table = table_of(asked, FSDP, (strategy,))
    return candidate(asked, FSDP, "", table, best(table))


def _would_fit(asked: Setting, strategy: Strategy, needed_bytes: int) -> Iterator[str]:
    """Yields the point nearest to this one that fits, then what would make this one fit."""
    yield from _sharded_more(asked, strategy)

    def least(other: Setting) -> Candidate:
        scaled = _scaled(strategy, asked.machine.world_size, other.machine.world_size)
        # Where the machine has no such point, this one stays what it is, and does not fit.
        legal = why_illegal(scaled, other.machine.level_sizes) is None
        return _smallest(other, scaled) if legal else _smallest(asked, strategy)

    yield from suggestions(asked, needed_bytes, least)


def _sharded_more(asked: Setting, strategy: Strategy) -> Iterator[str]:
    """Yields the nearest point that shards more and fits; where that is not DeepSpeed's, the nearest of it too."""
    known = systems(asked.machine.level_sizes, asked.machine.ranks_per_node)
    unit = bytes_unit(asked.budget_bytes)
    for engines in ((FSDP,),) if asked.job.engine == "fsdp" else ((DEEPSPEED, FSDP), (DEEPSPEED,)):
        found = larger(asked, strategy, engines)
        if found is None:
            continue
        point = replace(found.assignment[0], recompute="none")
        name, degrees = name_of(point, known), option_text(point)
        memory, step_s = found.predicted.memory, found.predicted.step_s
        yield (
            f"{degrees}{'' if name.startswith('degrees') else f' ({name})'}: {bytes_in(unit, memory.peak_bytes)} and "
            f"{seconds_text(step_s)} a step{'' if found.engine == DEEPSPEED.name else ' on the engine fsdp'}, the "
            f"least more sharding that fits{' on DeepSpeed' if engines == (DEEPSPEED,) else ''}"
        )
        if found.engine == DEEPSPEED.name:
            return


def _scaled(strategy: Strategy, world_size: int, other_size: int) -> Strategy:
    """Returns the strategy on another number of ranks: what was sharded over all of them stays so."""

    def scaled(degree: int) -> int:
        return other_size if degree == world_size else degree

    return replace(
        strategy,
        param_degree=scaled(strategy.param_degree),
        secondary_degree=scaled(strategy.secondary_degree),
        grad_degree=scaled(strategy.grad_degree),
        optim_degree=scaled(strategy.optim_degree),
    )


_ON_HOST: dict[str, Offload] = {"none": "none", "optimizer": "optimizer", "auto": "all"}
"""What is offloaded to need the least memory, by the job's `offload`."""


def _smallest(asked: Setting, strategy: Strategy) -> Candidate:
    least = replace(asked, shapes=asked.shapes[:1])
    strategy = replace(strategy, offload=_ON_HOST[asked.job.offload])
    engine = engine_of(least, strategy)
    table = table_of(least, engine, (strategy,))
    return candidate(least, engine, "", table, smallest(table))
