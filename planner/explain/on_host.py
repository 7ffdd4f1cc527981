"""What an update of states in host memory takes, with its formulas."""

from __future__ import annotations

from costmodels.compute import NS_PER_S
from costmodels.lower import FilledFormula, fill_in
from costmodels.network import HostSpeed
from costmodels.offload import HOST_UPDATE_NS, MOVED_NS, gathered_width, host_width, moved_width
from costmodels.states import state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.symbols import (
    HOST_BYTES_PER_S,
    HOST_WIDTH,
    LINK_BYTES_PER_S,
    MOVED_WIDTH,
    NUM_PARAMS,
    OPTIM_DEGREE,
)
from planner.explain.explanation import Line
from planner.plan import Plan, PlannedStrategy


def on_host(plan: Plan, host: HostSpeed | None) -> tuple[Line, ...]:
    """Returns the parts of the update, of all blocks at once; nothing where no state lies on the host.

    Args:
        plan: what is explained.
        host: a rank's part of its node's host.
    """
    planned = plan.strategies[0]
    if planned.offload == "none" or host is None:
        return ()
    strategy, shape = _strategy(planned), _shape(plan)
    widths = state_widths(shape.precision, shape.optimizer)
    given = {
        LINK_BYTES_PER_S: host.link_bytes_per_s,
        HOST_BYTES_PER_S: host.memory_bytes_per_s,
        HOST_WIDTH: host_width(widths),
        OPTIM_DEGREE: strategy.optim_degree,
    }
    trained = given | {NUM_PARAMS: plan.model.num_trainable_params}
    lines = [
        _line(
            "gradients down, parameters up", fill_in(MOVED_NS, trained | {MOVED_WIDTH: moved_width(strategy, shape)})
        ),
        _line(HOST_UPDATE_NS.name, fill_in(HOST_UPDATE_NS, trained)),
    ]
    if gathered := gathered_width(strategy, shape):
        every = given | {NUM_PARAMS: plan.model.num_params, MOVED_WIDTH: gathered}
        lines.insert(1, _line("parameters up for gathers", fill_in(MOVED_NS, every)))
    return tuple(lines)


def _line(name: str, filled: FilledFormula) -> Line:
    return Line(
        name=name,
        formula=filled.formula,
        substituted=f"{filled.substituted} = {filled.value:,} ns",
        value=filled.value / NS_PER_S,
        unit="s",
        source=filled.source,
    )


def _strategy(planned: PlannedStrategy) -> Strategy:
    return Strategy(
        planned.param_degree,
        planned.secondary_degree,
        planned.grad_degree,
        planned.optim_degree,
        offload=planned.offload,
    )


def _shape(plan: Plan) -> StepShape:
    job, hardware = plan.job, plan.hardware
    return StepShape(
        hardware.world_size,
        job.micro_batch_size,
        job.num_micro_batches,
        job.precision,
        job.optimizer,
        hardware.device_kind,
        hardware.ranks_per_node,
    )
