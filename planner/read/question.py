"""The question that a command asks: a traced model, and the job to plan for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from costmodels.strategy import Precision
from hw_profiles.schema import HardwareProfile
from planner.choose.batches import check_batches
from planner.errors import InputError
from planner.job import Job
from planner.model_graph import ModelGraph
from planner.read.options import TIME_LIMIT_S
from planner.read.request import Request
from planner.read.saved_graph import read_graph
from planner.read.source import read_source
from planner.report.screen import Screen

if TYPE_CHECKING:
    from planner.verify.verification import Verification


def question(
    request: Request, profile: HardwareProfile, screen: Screen, world_sizes: Sequence[int] | None = None
) -> tuple[ModelGraph, Job]:
    """Returns the model of a request, a saved trace or a new one for the machine's kind of device, and its job.

    Args:
        request: What plan, estimate and sweep share.
        profile: The machine.
        screen: Where the model's own output goes.
        world_sizes: The numbers of ranks to plan for; None: the machine's.

    Raises:
        InputError: The batch cannot be, or a saved trace is asked for another way or with arguments.
        TraceError: The model cannot be traced.
    """
    job = request.job(request.precision or "bf16", request.sequence_length)
    # A batch that cannot be should not wait for the trace.
    check_batches(job, world_sizes or [profile.world_size], profile.device.kind)
    graph = read_graph(request.model)
    if graph is None:
        graph = traced(
            request.model,
            request.model_arg or [],
            precision=job.precision,
            device=profile.device.kind,
            sequence_length=job.sequence_length,
            way=request.trace,
            time_limit_s=request.time_limit,
            screen=screen,
        )
    elif request.model_arg or request.trace != "auto":
        option = "--model-arg" if request.model_arg else "--trace"
        raise InputError(f"{request.model} is a saved trace, which {option} cannot change; trace the model again")
    return graph, request.job(request.precision or graph.precision, request.sequence_length or graph.sequence_length)


def saved(spec: str, *, is_changed: bool) -> ModelGraph | None:
    """Returns the saved trace of this name, None where it is another MODEL.

    Raises:
        InputError: It is damaged, or options ask for another trace than it is.
    """
    graph = read_graph(spec)
    if graph is not None and is_changed:
        raise InputError(f"{spec} is a saved trace, which no option of `trace` can change; trace the model again")
    return graph


def traced(
    spec: str,
    arguments: Sequence[str],
    *,
    precision: Precision,
    device: Literal["cuda", "cpu"],
    screen: Screen,
    autocast: Literal["bf16", "fp16"] | None = None,
    sequence_length: int | None = None,
    way: Literal["auto", "fake", "make_fx", "static"] = "auto",
    time_limit_s: float = TIME_LIMIT_S,
) -> ModelGraph:
    """Returns the trace of a MODEL of the command line; what the model prints goes to standard error.

    Raises:
        InputError: There is no such model.
        TraceError: It cannot be traced.
    """
    # torch takes seconds to import, and a saved graph does not need it.
    from planner.trace import trace

    with screen.status(f"tracing {spec}"), screen.others_aside():
        return trace(
            read_source(spec, tuple(arguments)),
            precision=precision,
            device=device,
            autocast=autocast,
            sequence_length=sequence_length,
            way=way,
            time_limit_s=time_limit_s,
        )


def verified(
    spec: str,
    arguments: Sequence[str],
    *,
    precision: Precision,
    autocast: Literal["bf16", "fp16"] | None,
    sequence_length: int | None,
    screen: Screen,
) -> list[Verification]:
    """Returns the trace of a MODEL beside a real step on this CPU, without recomputation and with it.

    Raises:
        InputError: There is no such model, it is a saved trace, or its step does not fit here.
        TraceError: It cannot be traced.
    """
    if read_graph(spec) is not None:
        raise InputError(f"{spec} is a saved trace, and --verify runs the model itself: give where it was traced from")
    from planner.verify import verify

    with screen.status(f"running {spec}"), screen.others_aside():
        source = read_source(spec, tuple(arguments))
        return [
            verify(
                source,
                precision=precision,
                autocast=autocast,
                sequence_length=sequence_length,
                recompute=recompute,
            )
            for recompute in (False, True)
        ]
