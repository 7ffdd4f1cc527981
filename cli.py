"""The `shardplan` command: reads, calls, prints, exits.

Heavy libraries are imported inside the commands that need them, so that `--help` and `machines` answer at once.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hw_profiles.load import LOCAL_NAME, load, shipped_names, user_profile_path
from planner.emit.emit import check_replaceable, emit, plan_json
from planner.emit.write_whole import write_whole
from planner.errors import InputError, RunError, TraceError
from planner.plan import PlanWithPareto
from planner.read.options import (
    TIME_LIMIT_S,
    Autocast,
    Counts,
    Degrees,
    Folder,
    Force,
    Json,
    Nodes,
    Out,
    Pareto,
    TimeLimit,
    Verbose,
    Way,
    parse_counts,
    parse_degrees,
)
from planner.read.planned_folder import PlannedFolder, planned_from, read_folder
from planner.read.question import question, saved, traced, verified
from planner.read.request import Request, takes_request
from planner.report.answering import answer_to, make_writable
from planner.report.screen import Screen, json_text

if TYPE_CHECKING:
    from hw_profiles.schema import HardwareProfile
    from planner.calibrate import Calibrated
    from planner.model_graph import ModelGraph
    from planner.plan import ParetoPoint, Plan
    from planner.run.run_report import RunReport

app = typer.Typer(
    name="shardplan",
    help="Plans sharded data-parallel training: the fastest partition that fits, proved, as files that run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
@takes_request
def plan(
    request: Request,
    nodes: Nodes = None,
    pareto: Pareto = False,
    out: Out = None,
    force: Force = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Choose the fastest partition of parameters, gradients and optimizer states that fits."""
    screen = Screen(as_json)
    if out is not None:
        check_replaceable(out, force)
    from planner.pipeline import plan as choose
    from planner.pipeline import plan_and_pareto

    profile = load(request.hardware, nodes, request.ranks_per_node)
    graph, job = question(request, profile, screen)
    points = None
    with screen.status("choosing the fastest strategy that fits"):
        if pareto:
            chosen, points = plan_and_pareto(graph, profile, job)
        else:
            chosen = choose(graph, profile, job)
    _deliver(chosen, graph, profile, screen, out, force, verbose, points)


@app.command()
@takes_request
def estimate(
    request: Request,
    degrees: Annotated[
        Degrees | None, typer.Option(parser=parse_degrees, metavar="p,g,o", help="The strategy's degrees.")
    ] = None,
    secondary_degree: Annotated[
        int | None, typer.Option(min=1, metavar="s", help="Degree of the parameters kept for backward; default: p.")
    ] = None,
    ds_config: Annotated[
        Path | None, typer.Option("--ds-config", metavar="FILE", help="A DeepSpeed config instead of degrees.")
    ] = None,
    nodes: Nodes = None,
    out: Out = None,
    force: Force = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Say what one given strategy would do: its memory, traffic and time."""
    screen = Screen(as_json)
    _one_strategy(degrees, secondary_degree, ds_config)
    if out is not None:
        check_replaceable(out, force)
    from planner.pipeline import estimate as evaluate

    profile = load(request.hardware, nodes, request.ranks_per_node)
    graph, job = question(request, profile, screen)
    with screen.status("estimating"):
        answer = evaluate(graph, profile, job, degrees, secondary_degree=secondary_degree, ds_config=ds_config)
    _deliver(answer, graph, profile, screen, out, force, verbose)


@app.command()
@takes_request
def sweep(
    request: Request,
    nodes: Annotated[
        Counts, typer.Option(parser=parse_counts, metavar="1,2,4", help="Numbers of nodes, each to be planned for.")
    ],
    as_json: Json = False,
) -> None:
    """Plan for several sizes of the machine: one trace, a plan or the reason for each."""
    screen = Screen(as_json)
    from planner.pipeline import sweep as plan_each

    profile = load(request.hardware, max(nodes), request.ranks_per_node)
    sizes = [count * profile.ranks_per_node for count in nodes]
    graph, job = question(request, profile, screen, sizes)
    # No spinner: it has a thread of its own, beside which no process is forked.
    screen.progress(f"planning for {len(sizes)} sizes")
    answers = plan_each(graph, profile, job, sizes, num_processes=os.cpu_count() or 1)
    from planner.report.sweep import scaled, sweep_table

    if as_json:
        screen.document(json_text([answer.model_dump(mode="json") for answer in scaled(answers)]))
    else:
        screen.page(sweep_table(answers))


@app.command()
def trace(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As for `plan`.")],
    sequence_length: Annotated[int | None, typer.Option(min=1, metavar="S", help="Tokens per sample.")] = None,
    precision: Annotated[
        Literal["bf16", "fp16", "fp32"] | None,
        typer.Option(help="Type of the weights; default: bf16, or fp32 with --autocast.", show_default=False),
    ] = None,
    autocast: Autocast = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Follow the kernels of this machine's kind of device.")
    ] = None,
    device: Annotated[
        Literal["cuda", "cpu"] | None,
        typer.Option(help="Whose kernels decide what is saved; default: the machine's, or cuda.", show_default=False),
    ] = None,
    model_arg: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="As for `plan`.")] = None,
    way: Way = "auto",
    time_limit: TimeLimit = TIME_LIMIT_S,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run a real step on this CPU too, and say how far the trace is from it.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the ModelGraph here.")] = None,
    as_json: Json = False,
) -> None:
    """Trace a model: its blocks, work and saved bytes. A saved trace serves as MODEL."""
    from planner.read.saved_graph import graph_document
    from planner.report.graph import graph_page

    screen = Screen(as_json)
    weights = precision or ("fp32" if autocast else "bf16")
    if verify:
        if hardware or device == "cuda" or out or way != "auto":
            raise InputError(
                "--verify runs a real step on this CPU: leave --hardware, --device cuda, --trace and --out out; trace "
                "again without --verify to plan from it"
            )
        _verify(model, model_arg or [], weights, autocast, sequence_length, screen)
        return
    asked = (model_arg, sequence_length, precision, autocast, hardware, device)
    graph, seconds = saved(model, is_changed=any(asked) or way != "auto"), None
    if graph is None:
        started = time.perf_counter()
        graph = traced(
            model,
            model_arg or [],
            precision=weights,
            device=device or (load(hardware).device.kind if hardware else "cuda"),
            screen=screen,
            autocast=autocast,
            sequence_length=sequence_length,
            way=way,
            time_limit_s=time_limit,
        )
        seconds = time.perf_counter() - started
    document = json_text(graph_document(graph))
    if out is not None:
        write_whole(out, document)
    if as_json:
        screen.document(document)
    else:
        screen.page(graph_page(graph, seconds))
        if out is not None:
            screen.page(f"\nWritten to {out}; it serves as MODEL.")


@app.command()
def run(
    folder: Folder,
    steps: Annotated[int, typer.Option(min=1, metavar="K", help="Optimizer steps.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the initial weights and of generated data.")] = 0,
    hostfile: Annotated[Path | None, typer.Option(metavar="FILE", help="Lines of `host slots=n`.")] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE.py:CALLABLE", help="Data in place of generated.")] = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan's profile with what was measured folded in.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Launch the emitted files, and show what was measured beside what was predicted.

    With --calibrate, compute and messages are timed by themselves too, and the next plan is made with
    `--hardware FILE`.
    """
    from planner.report.progress import run_progress
    from planner.report.run import run_page
    from planner.run.run import run as launch

    screen = Screen(as_json)
    if calibrate is not None:
        from hw_profiles.save import check_writable

        check_writable(calibrate)
        read_folder(folder)
    try:
        with run_progress(steps) as on_step:
            report = launch(
                folder,
                steps=steps,
                seed=seed,
                hostfile=hostfile,
                data=data,
                on_progress=on_step,
                apart=calibrate is not None,
            )
    except KeyboardInterrupt as error:
        raise RunError("interrupted; all ranks were ended") from error
    if not as_json:
        screen.page(run_page(report))
    if calibrate is not None:
        from planner.report.calibration import calibration_page

        calibrated = _calibrated(read_folder(folder), report, calibrate)
        if not as_json:
            screen.page(calibration_page(calibrated, calibrate))
    if as_json:
        screen.document(json_text(report.model_dump(mode="json")))


@app.command()
def explain(
    folder: Folder,
    why_not: Annotated[
        Degrees | None, typer.Option(parser=parse_degrees, metavar="p,g,o", help="Why did this strategy lose?")
    ] = None,
    secondary_degree: Annotated[
        int | None, typer.Option(min=1, metavar="s", help="With --why-not: its secondary degree.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the formulas of a plan with their numbers and its timeline, or why another strategy lost."""
    screen = Screen(as_json)
    if secondary_degree is not None and why_not is None:
        raise InputError("--secondary-degree goes with --why-not p,g,o: it is of the strategy that lost")
    planned = read_folder(folder)
    document: dict[str, Any]
    if why_not is None:
        from planner.explain.explain import explain as explanation_of
        from planner.machine import machine
        from planner.report.explanation import explanation_page

        explanation = explanation_of(
            planned.plan, planned.graph, machine(planned.profile, planned.plan.job.precision, planned.graph)
        )
        document, page = explanation.model_dump(mode="json"), explanation_page(explanation)
    else:
        from planner.pipeline import why_not as compared
        from planner.report.comparison import comparison_page

        with screen.status("comparing"):
            comparison = compared(
                planned.plan, planned.graph, planned.profile, planned.job(), why_not, secondary_degree
            )
        document, page = comparison.model_dump(mode="json"), comparison_page(comparison)
    if as_json:
        screen.document(json_text(document))
    else:
        screen.page(page)
        if why_not is None:
            _show_timeline(planned, screen)


@app.command()
def profile(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: what `--hardware local-cpu` reads.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repetitions.")] = False,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Nodes; alone, they are started here.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(min=1, metavar="R", help="Ranks of each node.")] = None,
    levels: Annotated[
        Counts | None,
        typer.Option(parser=parse_counts, metavar="2,4", help="Sizes of the levels, inner first, in place of found."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with a measurement that was cut off.")] = False,
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read: `nvidia-smi topo -m` or `rocm-smi --showtopo`.")
    ] = None,
    collectives: Annotated[
        list[Path] | None,
        typer.Option(metavar="[OPERATION=]FILE", help="Read: output of nccl-tests or rccl-tests. Repeatable."),
    ] = None,
    links: Annotated[Path | None, typer.Option(metavar="FILE", help="Read: a JSON of links with bandwidths.")] = None,
    like: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Whose device it is, where nothing read says so.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure this machine, alone or under torchrun or srun; or read what is known of one.

    What is measured is kept as it comes: the same command goes on where it was cut off. All ranks end when one fails,
    and when one hangs for a minute.
    """
    if out is not None and out.is_dir():
        raise InputError(f"{out} is a folder; --out names the profile's file")
    from hw_profiles.save import as_json as profile_json
    from hw_profiles.save import save
    from planner.report.machines import profile_page, saved_to
    from planner.report.progress import measure_progress

    screen, journal = Screen(as_json), None
    if topology or collectives or links:
        _only_of_reading(quick, fresh, ranks_per_node)
        from hw_profiles.read.read_machine import read_machine

        found = read_machine(topology, tuple(collectives or ()), links, levels=levels, num_nodes=nodes, like=like)
        target = out
    else:
        if like is not None:
            raise InputError("--like goes with --topology, --collectives or --links; a machine measured is like itself")
        from hw_profiles.measure.profile_machine import profile_machine

        target = out or user_profile_path()
        journal = target.with_name(f".{target.name}.partial")
        with measure_progress() as say:
            measured = profile_machine(nodes, ranks_per_node, quick, say, levels=levels, journal=journal, fresh=fresh)
        if measured is None:  # under a launcher, on every rank but the first
            return
        found = measured
    if target is not None:
        save(found, target, journal)
    if as_json:
        screen.document(profile_json(found))
    else:
        screen.page(profile_page(found))
        screen.page(saved_to(target, LOCAL_NAME if out is None else str(out)))


@app.command()
def machines(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="A shipped name or a file: all that it knows, and whence.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the shipped machines, or show one profile with its sources."""
    from hw_profiles.save import as_json as profile_json
    from planner.report.machines import machines_table, profile_page, sources_table

    screen = Screen(as_json)
    if profile is not None:
        found = load(profile)
        if as_json:
            screen.document(profile_json(found))
        else:
            screen.page(profile_page(found))
            screen.page(sources_table(found))
        return
    profiles = [load(name) for name in shipped_names()]
    if as_json:
        screen.document(json_text([each.model_dump(mode="json", exclude={"curves"}) for each in profiles]))
    else:
        screen.page(machines_table(profiles))


def _verify(
    model: str,
    arguments: list[str],
    precision: Literal["bf16", "fp16", "fp32"],
    autocast: Literal["bf16", "fp16"] | None,
    sequence_length: int | None,
    screen: Screen,
) -> None:
    """Prints the trace beside real steps, without and with recomputation; exits with 4 where it is not as promised."""
    found = verified(
        model, arguments, precision=precision, autocast=autocast, sequence_length=sequence_length, screen=screen
    )
    holds = all(each.holds for each in found)
    if screen.as_json:
        screen.document(json_text({"holds": holds, "steps": [each.model_dump(mode="json") for each in found]}))
    else:
        from planner.report.verification import verification_page

        for each in found:
            screen.page(verification_page(each))
    if not holds:
        raise typer.Exit(TraceError.exit_code)


def _show_timeline(planned: PlannedFolder, screen: Screen) -> None:
    from planner.choose.timeline_of import timeline_of
    from planner.machine import machine
    from planner.report.timeline import timeline_page

    plan, graph = planned.plan, planned.graph
    timeline = timeline_of(plan, graph, machine(planned.profile, plan.job.precision, graph))
    screen.page("")
    screen.page(timeline_page(timeline, plan, [block.name for block in graph.workload.blocks]))


def _calibrated(planned: PlannedFolder, report: RunReport, out: Path) -> Calibrated:
    """Writes the plan's profile with what a run found."""
    from hw_profiles.save import save
    from planner.calibrate import calibrate

    found = calibrate(planned, report, datetime.now(tz=UTC).date())
    save(found.profile, out)
    return found


def _one_strategy(degrees: Degrees | None, secondary_degree: int | None, ds_config: Path | None) -> None:
    if (degrees is None) == (ds_config is None):
        raise InputError("give either --degrees p,g,o or --ds-config FILE: the one strategy to estimate")
    if ds_config is not None and secondary_degree is not None:
        raise InputError("--secondary-degree goes with --degrees; a DeepSpeed config says its own")


def _only_of_reading(quick: bool, fresh: bool, ranks_per_node: int | None) -> None:
    """Refuses options of measuring beside files: they would change nothing."""
    given = {"--quick": quick, "--fresh": fresh, "--ranks-per-node": ranks_per_node is not None}
    named = [option for option, is_given in given.items() if is_given]
    if named:
        raise InputError(
            f"{' and '.join(named)} is of measuring: where files are read (--topology, --collectives, --links), they "
            "say how many ranks a node has; leave it out"
        )


def _deliver(
    answer: Plan,
    graph: ModelGraph,
    profile: HardwareProfile,
    screen: Screen,
    out: Path | None,
    force: bool,
    verbose: bool,
    points: tuple[ParetoPoint, ...] | None = None,
) -> None:
    """Writes the folder that was asked for, then prints the plan, with the points of its front if there are any."""
    from planner.report.pareto import pareto_page
    from planner.report.plan import plan_summary, written_to

    if out is not None:
        from planner.report.report_of import PAGE_FILE, report_of

        files = {**planned_from(graph, profile), PAGE_FILE: report_of(answer, graph, profile)}
        emit(answer, out, force=force, extra_files=files)
    if screen.as_json:
        screen.document(plan_json(answer if points is None else PlanWithPareto(**dict(answer), pareto=points)))
        return
    screen.page(plan_summary(answer, verbose=verbose))
    if points is not None:
        screen.page(pareto_page(answer, points))
    screen.page(written_to(answer, out))


def main() -> None:
    """Runs the command line and exits with the contract's code."""
    make_writable(is_json="--json" in sys.argv)
    # A plan is made of millions of small values without cycles; looking for these takes a quarter of the time.
    gc.set_threshold(100_000, 50, 50)
    sys.exit(answer(sys.argv[1:]))


def answer(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; an error becomes a text, never a traceback."""
    return answer_to(app, arguments)
