"""The plan: the contract's `plan.json`, and its opposite, `Infeasible`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from costmodels.strategy import Offload, Precision, Recompute
from planner.model_graph import ModelSource

SCHEMA_VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedModel(_Frozen):
    """The model that was planned."""

    name: str
    num_params: int
    num_trainable_params: int
    source: ModelSource
    recompute_modules: tuple[str, ...] = ()
    """Modules that the launcher re-runs in backward."""


class PlannedLevel(_Frozen):
    """One layer of the machine, inner first."""

    name: str
    size: int


class PlannedHardware(_Frozen):
    """The machine that was planned for."""

    name: str
    device: str
    device_kind: Literal["cuda", "cpu"]
    world_size: int
    ranks_per_node: int
    levels: tuple[PlannedLevel, ...]


class PlannedJob(_Frozen):
    """The batch: micro_batch_size x num_micro_batches x world_size = global_batch_size."""

    global_batch_size: int
    micro_batch_size: int
    num_micro_batches: int
    sequence_length: int | None
    precision: Precision
    optimizer: str


class PlannedStrategy(_Frozen):
    """The strategy of a class of blocks."""

    blocks: tuple[str, ...]
    param_degree: int
    secondary_degree: int
    grad_degree: int
    optim_degree: int
    recompute: Recompute
    quantized_weights: bool = False
    quantized_gradients: bool = False
    offload: Offload = "none"
    hierarchical: bool = False
    """Of the fsdp engine: collectives that span several levels go level by level."""


class MemoryComponents(_Frozen):
    """Bytes by purpose at the peak of the step."""

    parameters: int
    gradients: int
    optimizer_states: int
    activations: int
    gathered_parameters: int
    buffers: int
    optimizer_step: int
    reserved: int


class PredictedMemory(_Frozen):
    """Bytes of device memory on the fullest rank."""

    peak_bytes: int
    at_rest_bytes: int
    init_peak_bytes: int
    budget_bytes: int
    peak_phase: str
    """Where in the step the peak is, for people: `backward of transformer.h.3`."""
    components: MemoryComponents
    host_bytes: int = 0
    """Of its node's host memory, what the rank takes for what is offloaded; 0 on CPUs, where it is in the peak."""


class PredictedTraffic(_Frozen):
    """All messages of one operation over one kind of group, per rank and optimizer step."""

    operation: str
    degree_from: int
    degree_to: int
    bytes: int
    count: int
    seconds: float
    exposed_s: float
    known: Literal["measured", "interpolated", "modelled"]
    """How the seconds are known: those of the least certain message."""


class ExposedTime(_Frozen):
    """Seconds of communication that compute does not hide, by what it is for; sums to `exposed_communication_s`."""

    forward_s: float
    backward_s: float
    boundary_s: float
    update_s: float
    control_s: float


class ComputedTime(_Frozen):
    """Seconds of compute by what it is for; sums to `compute_s`."""

    forward_s: float
    backward_s: float
    """Without recomputation."""
    recomputation_s: float
    """The forward of recomputed blocks, run again in backward."""
    update_s: float


class Predicted(_Frozen):
    """What the engine will do."""

    step_s: float
    compute_s: float
    exposed_communication_s: float
    tokens_per_s: float
    mfu: float
    memory: PredictedMemory
    traffic: tuple[PredictedTraffic, ...]
    exposed: ExposedTime | None = None
    compute: ComputedTime | None = None
    simulated_step_s: float | None = None
    """The step played through, message by message; `step_s` is the cost model's bound of it. None: not played."""


class SolverReport(_Frozen):
    """How the choice was proved. Status OPTIMAL: nothing in the space is faster under the cost model."""

    status: Literal["OPTIMAL", "FEASIBLE", "FIXED"]
    """FEASIBLE: the best found within a limit of seconds or work. FIXED: the strategy was given, as in `estimate`."""
    objective_s: float
    bound_s: float
    gap: float
    num_strategies: int
    wall_s: float
    decided_by: Literal["bound", "simulation", "levels", "alike", "blocks"] = "bound"
    """simulation: of the choices near the best bound, the chosen one is faster when played through. levels: the bound's
    own is faster still where collectives go level by level. alike: one strategy for all blocks is as fast as those by
    class, to a thousandth. blocks: the bound's own is faster still where fewer blocks than whole classes are
    recomputed. Status, objective, bound and gap stay those of the bound's own."""


class Alternative(_Frozen):
    """Another strategy, with what it would have cost and why it was not chosen."""

    name: str
    engine: str
    strategies: tuple[PlannedStrategy, ...]
    micro_batch_size: int
    step_s: float
    peak_bytes: int
    verdict: str


class Plan(_Frozen):
    """The chosen strategies with their costs; what `plan.json` holds."""

    schema_version: int = SCHEMA_VERSION
    model: PlannedModel
    hardware: PlannedHardware
    job: PlannedJob
    engine: Literal["deepspeed", "fsdp"]
    native_deepspeed: bool
    """True when the DeepSpeed config alone is enough."""
    strategies: tuple[PlannedStrategy, ...]
    predicted: Predicted
    solver: SolverReport
    alternatives: tuple[Alternative, ...]
    ds_config: dict[str, Any]
    warnings: tuple[str, ...] = ()


class ParetoPoint(_Frozen):
    """A choice that no other one beats in step time without more memory, nor in memory without more time."""

    strategies: tuple[PlannedStrategy, ...]
    micro_batch_size: int
    step_s: float
    peak_bytes: int
    """On the fullest rank; it may be beyond the job's budget."""
    name: str


class PlanWithPareto(Plan):
    """What `plan --pareto --json` prints: a plan, and what more or less memory would have made of it."""

    pareto: tuple[ParetoPoint, ...]


class Scaling(_Frozen):
    """How a size of the machine compares with the others of a sweep."""

    tokens_per_s_per_rank: float
    efficiency: float
    """The same over that of the fewest ranks that fit; 1: as much per rank."""
    is_fewest_ranks: bool
    """No plan fits on fewer."""
    is_most_per_rank: bool
    """No size trains more per rank; of equal ones that with the fewest ranks."""


class ScaledPlan(Plan):
    """What `sweep --json` prints for a size that has a plan."""

    scaling: Scaling


class Infeasible(_Frozen):
    """There is no plan: how far the nearest strategy is from fitting, or why no step is legal, and what would help."""

    model_name: str
    hardware_name: str
    world_size: int
    needed_bytes: int
    available_bytes: int
    nearest: Alternative | None
    """The strategy that needs the least memory; None: no step is legal, and nothing was evaluated."""
    suggestions: tuple[str, ...]
    reason: str | None = None
    """Why no step is legal on so many ranks, and what would be; None: memory is the reason."""
