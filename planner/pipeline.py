"""Joins the stages: what the library and the command line call.

trace -> estimate -> solve -> evaluate -> alternatives -> assemble
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from costmodels.strategy import Strategy
from hw_profiles.errors import ProfileError
from hw_profiles.load import load
from hw_profiles.resize import resize
from hw_profiles.schema import HardwareProfile
from planner.choose.batches import check_batches
from planner.choose.fixed import fixed_plan
from planner.choose.infeasible import illegal, message
from planner.choose.pareto import pareto as pareto_of
from planner.choose.rival_of import rival_of
from planner.choose.search import search
from planner.choose.search_blocks import best_of_blocks, search_blocks
from planner.choose.search_both import search_both
from planner.choose.setting import Setting, setting
from planner.choose.space import space, whole_space
from planner.collector import paused_collector
from planner.errors import BatchError, DoesNotFit, HostError, InputError
from planner.explain.compare import compare
from planner.explain.explanation import Comparison
from planner.job import Job
from planner.model_graph import ModelGraph, ModelSource
from planner.plan import Infeasible, ParetoPoint, Plan
from planner.read.agree import agree
from planner.read.read_ds_config import read_ds_config
from planner.read.saved_graph import read_graph
from planner.side_by_side import side_by_side

Model = ModelGraph | ModelSource | str
Hardware = HardwareProfile | str | Path

_TRACING = Lock()
"""One trace at a time: it sets torch's defaults and hushes warnings, which threads share, and puts them back."""


def plan(model: Model, hardware: Hardware, job: Job) -> Plan:
    """Returns the fastest plan that fits, with the proof that none in the search space is faster.

    Args:
        model: A traced model, where to find one, or a MODEL as on the command line.
        hardware: A profile, a shipped name, or the path of one.
        job: The batch, the numbers, and what may be chosen.

    Raises:
        DoesNotFit: No strategy fits the memory budget.
        InputError: The job cannot be, on this machine: a batch that does not divide, an unknown name.
        TraceError: The model cannot be built or traced.
    """
    return _fitting(_answer(_asked(model, hardware, job)))


def pareto(model: Model, hardware: Hardware, job: Job) -> tuple[ParetoPoint, ...]:
    """Returns what each amount of memory buys: the points that none dominates in step time and memory per rank.

    They are of DeepSpeed's whole search space, the fastest first, whatever the job's memory budget: the first whose
    peak is within a budget is what `plan` chooses for it with `engine="deepspeed"`.

    Args:
        model: As for `plan`.
        hardware: As for `plan`.
        job: As for `plan`; without `solve_time_limit_s`, since a front is exact.

    Raises:
        InputError: As for `plan`, the solver's seconds are limited, or the job asks for the fsdp engine.
        TraceError: As for `plan`.
    """
    asked = _asked(model, hardware, job)
    return pareto_of(asked, whole_space(asked))


def plan_and_pareto(model: Model, hardware: Hardware, job: Job) -> tuple[Plan, tuple[ParetoPoint, ...]]:
    """Returns DeepSpeed's plan and what `pareto` does, from one trace and one cost table; raises what they do.

    A front is of DeepSpeed's strategies, and the plan is a point of it; the fsdp engine's best stands beside it.
    """
    asked = _asked(model, hardware, job)
    table = whole_space(asked)
    beside = (best_of_blocks(asked),) if job.engine == "auto" else ()
    rivals = tuple(each for each in beside if each is not None)
    return _fitting(search(asked, table, rivals)), pareto_of(asked, table)


def estimate(
    model: Model,
    hardware: Hardware,
    job: Job,
    degrees: tuple[int, int, int] | None = None,
    secondary_degree: int | None = None,
    ds_config: Path | None = None,
) -> Plan:
    """Returns what one given strategy would do, at its best micro-batch and recomputation; whether it fits or not.

    Args:
        model: As for `plan`.
        hardware: As for `plan`.
        job: As for `plan`.
        degrees: (p, g, o).
        secondary_degree: s; None: gathered anew over p. 1: kept from forward.
        ds_config: A DeepSpeed configuration instead of degrees.

    Raises:
        InputError: Degrees that do not nest, both or neither of degrees and ds_config, or as for `plan`.
        TraceError: As for `plan`.
    """
    if (degrees is None) == (ds_config is None):
        raise InputError("give either degrees (p, g, o) or a DeepSpeed config: the one strategy to estimate")
    profile = _profile(hardware)
    if ds_config is not None:
        given = read_ds_config(ds_config)
        job = agree(job, given, profile.world_size)
        asked = setting(_graph(model, profile, job), profile, job)
        return fixed_plan(asked, given.strategy(profile.world_size, asked.workload.num_params), given)
    asked = setting(_graph(model, profile, job), profile, job)
    assert degrees is not None
    param_degree, grad_degree, optim_degree = degrees
    secondary = param_degree if secondary_degree is None else secondary_degree
    return fixed_plan(asked, Strategy(param_degree, secondary, grad_degree, optim_degree))


def why_not(
    chosen: Plan,
    model: Model,
    hardware: Hardware,
    job: Job,
    degrees: tuple[int, int, int],
    secondary_degree: int | None = None,
) -> Comparison:
    """Returns why a plan won over another strategy, in numbers.

    Args:
        chosen: What `plan` or `estimate` returned.
        model: What it was planned from.
        hardware: The machine that it is for.
        job: Its batch, numbers and budget; micro-batch and recomputation are free unless it says them.
        degrees: (p, g, o) of the other strategy.
        secondary_degree: s; None: gathered anew over p. 1: kept from forward.

    Raises:
        InputError: Degrees that are no point of the machine's search space, or as for `plan`.
        TraceError: As for `plan`.
    """
    param_degree, grad_degree, optim_degree = degrees
    secondary = param_degree if secondary_degree is None else secondary_degree
    asked = _asked(model, hardware, job)
    return compare(chosen, rival_of(asked, Strategy(param_degree, secondary, grad_degree, optim_degree), chosen))


def sweep(
    model: Model, hardware: Hardware, job: Job, world_sizes: Sequence[int], num_processes: int = 1
) -> list[Plan | Infeasible]:
    """Returns a plan, or the reason why there is none, for each world size; the model is traced once.

    Args:
        model: As for `plan`.
        hardware: As for `plan`; its number of nodes is replaced.
        job: As for `plan`.
        world_sizes: Numbers of ranks: whole nodes, or a part of one node.
        num_processes: How many sizes are planned at once, where no other thread runs; the answers are the same.

    Raises:
        InputError: A world size that the machine cannot have, or a global batch that divides over none of them.
        TraceError: As for `plan`.
    """
    profile = _profile(hardware)
    sizes = [_of_size(profile, world_size) for world_size in world_sizes]
    check_batches(job, world_sizes, profile.device.kind)
    graph = _graph(model, profile, job)
    # All questions are checked before the first is answered.
    questions = [_question(graph, size, job) for size in sizes]
    return side_by_side(_answer_or_reason, questions, num_processes)


def _asked(model: Model, hardware: Hardware, job: Job) -> Setting:
    profile = _profile(hardware)
    return setting(_graph(model, profile, job), profile, job)


def _answer_or_reason(asked: Setting | Infeasible) -> Plan | Infeasible:
    """Answers for one of several sizes: that a batch or the hosts do not go with one ends no sweep."""
    if isinstance(asked, Infeasible):
        return asked
    try:
        return _answer(asked)
    except HostError as error:
        return illegal(asked.graph, asked.profile, asked.job, error)


@paused_collector()
def _answer(asked: Setting) -> Plan | Infeasible:
    if asked.job.engine == "auto":
        return search_both(asked)
    return search_blocks(asked) if asked.job.engine == "fsdp" else search(asked, space(asked))


def _fitting(answer: Plan | Infeasible) -> Plan:
    if isinstance(answer, Infeasible):
        raise DoesNotFit(message(answer), answer)
    return answer


def _profile(hardware: Hardware) -> HardwareProfile:
    if isinstance(hardware, HardwareProfile):
        return hardware
    try:
        return load(hardware)
    except ProfileError as error:
        raise InputError(str(error)) from error


def _question(graph: ModelGraph, profile: HardwareProfile, job: Job) -> Setting | Infeasible:
    try:
        return setting(graph, profile, job)
    except BatchError as error:
        return illegal(graph, profile, job, error)


def _of_size(profile: HardwareProfile, world_size: int) -> HardwareProfile:
    ranks_per_node = min(profile.ranks_per_node, world_size)
    if world_size < 1 or world_size % ranks_per_node:
        raise InputError(f"{profile.name}: {world_size} ranks are no whole nodes of {profile.ranks_per_node}")
    try:
        return resize(profile, world_size // ranks_per_node, ranks_per_node)
    except ProfileError as error:
        raise InputError(str(error)) from error


def _graph(model: Model, profile: HardwareProfile, job: Job) -> ModelGraph:
    if isinstance(model, str):
        model = read_graph(model) or model
    if isinstance(model, ModelGraph):
        return model
    # torch takes seconds to import, and a saved graph does not need it.
    from planner.read.source import read_source
    from planner.trace import trace

    source = model if isinstance(model, ModelSource) else read_source(model, ())
    with _TRACING:
        return trace(source, precision=job.precision, device=profile.device.kind, sequence_length=job.sequence_length)
