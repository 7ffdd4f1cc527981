"""What plan, estimate and sweep share on the command line: each option once, with its type and its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_type_hints

import typer

from costmodels.strategy import Precision
from planner.job import Job
from planner.read.options import TIME_LIMIT_S, parse_bytes

_JOB = "The job"
_CHOICE = "What the planner may choose"


@dataclass(frozen=True, slots=True)
class Request:
    """The options that plan, estimate and sweep share; every field is one parameter of the command line."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="FILE.py:CALLABLE, package.module:CALLABLE, a Hugging Face config.json, or what `trace` saved.",
        ),
    ]
    hardware: Annotated[
        str, typer.Option(metavar="PROFILE", help="A shipped profile (see `shardplan machines`) or a JSON path.")
    ]
    global_batch_size: Annotated[
        int, typer.Option(min=1, metavar="B", help="Samples per optimizer step over all ranks.", rich_help_panel=_JOB)
    ]
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, metavar="R", help="Ranks on each node; default: the profile's.")
    ] = None
    sequence_length: Annotated[
        int | None, typer.Option(min=1, metavar="S", help="Tokens per sample.", rich_help_panel=_JOB)
    ] = None
    precision: Annotated[
        Precision | None,
        typer.Option(help="Default: bf16, or a saved trace's own.", show_default=False, rich_help_panel=_JOB),
    ] = None
    optimizer: Annotated[Literal["adamw", "adam", "sgd"], typer.Option(help="The optimizer.", rich_help_panel=_JOB)] = (
        "adamw"
    )
    model_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An argument of the model's callable; repeat it.", rich_help_panel=_JOB),
    ] = None
    trace: Annotated[
        Literal["auto", "fake", "make_fx", "static"],
        typer.Option(
            help="How the model is traced: exactly, on fake tensors; as one joint graph; from the layers alone.",
            rich_help_panel=_JOB,
        ),
    ] = "auto"
    time_limit: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Seconds that the trace may take.", rich_help_panel=_JOB)
    ] = TIME_LIMIT_S
    micro_batch_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="b", help="Samples per rank at once; default: chosen.", rich_help_panel=_CHOICE),
    ] = None
    engine: Annotated[
        Literal["auto", "deepspeed", "fsdp"], typer.Option(help="Who runs the plan.", rich_help_panel=_CHOICE)
    ] = "auto"
    recompute: Annotated[
        Literal["auto", "none", "full"],
        typer.Option(help="Recomputation of activations in backward.", rich_help_panel=_CHOICE),
    ] = "auto"
    offload: Annotated[
        Literal["auto", "none", "optimizer"],
        typer.Option(
            help="Optimizer states in the host's memory: where it helps (then maybe parameters too), never, or always.",
            rich_help_panel=_CHOICE,
        ),
    ] = "auto"
    allow_lossy: Annotated[
        bool,
        typer.Option(
            "--allow-lossy",
            help="Allow int8 weights (qwZ) and int4 gradients (qgZ) on the wire: it changes the numbers.",
            rich_help_panel=_CHOICE,
        ),
    ] = False
    memory_budget: Annotated[
        int | None,
        typer.Option(
            parser=parse_bytes,
            metavar="BYTES",
            help="Device memory per rank that a plan may use, as bytes, 70GiB or 70GB; default: the profile's.",
            rich_help_panel=_CHOICE,
        ),
    ] = None
    solve_time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="S",
            help="Seconds for the solver, then the best found with its gap; default: until it is proved.",
            rich_help_panel=_CHOICE,
        ),
    ] = None

    def job(self, precision: Precision, sequence_length: int | None) -> Job:
        """Returns the job, given what the traced model says of precision and sequence length."""
        return Job(
            global_batch_size=self.global_batch_size,
            sequence_length=sequence_length,
            micro_batch_size=self.micro_batch_size,
            precision=precision,
            optimizer=self.optimizer,
            engine=self.engine,
            recompute=self.recompute,
            offload=self.offload,
            allow_lossy=self.allow_lossy,
            memory_budget_bytes=self.memory_budget,
            solve_time_limit_s=self.solve_time_limit,
        )


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with its parameter `request` replaced by one parameter per field of `Request`."""
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "request"
    ]
    names = [field.name for field in fields(Request)]

    def with_request(**given: Any) -> None:
        request = Request(**{name: given.pop(name) for name in names})
        command(request=request, **given)

    with_request.__name__ = command.__name__
    with_request.__doc__ = command.__doc__
    # typer reads a command's parameters from its signature.
    with_request.__signature__ = inspect.Signature(_as_parameters() + own)  # type: ignore[attr-defined]
    return with_request


def _as_parameters() -> list[inspect.Parameter]:
    types = get_type_hints(Request, include_extras=True)
    template = inspect.signature(Request).parameters
    return [
        template[field.name].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[field.name])
        for field in fields(Request)
    ]
