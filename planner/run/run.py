"""Runs an emitted folder: launches its ranks, follows them, and puts what they measured beside the prediction."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planner.errors import InputError, RunError
from planner.launch_files import CARRIED, processes
from planner.plan import Plan
from planner.read.planned_folder import read_plan
from planner.report.figures import plural
from planner.run.hostfile import Host, read_hostfile
from planner.run.launch_command import launch_command
from planner.run.rank_failure import find_failure
from planner.run.run_report import Figures, RunReport, RunStep, TimedApart, predicted_figures
from planner.run.watch_ranks import NoProgressError, watch_ranks

OnProgress = Callable[[int, float, float], None]
"""Told after each step: its number from 1, its loss and its seconds."""

REPORT_FILE = "run.json"
CONFIG_FILE = "ds_config.json"
LOGS = "logs"


def run(
    folder: Path,
    *,
    steps: int = 10,
    seed: int = 0,
    hostfile: Path | None = None,
    data: str | None = None,
    model: str | None = None,
    on_progress: OnProgress | None = None,
    timeout_s: float = 1800.0,
    apart: bool = False,
) -> RunReport:
    """Runs the plan in `folder`, writes `run.json` there, and returns the same.

    Args:
        folder: What `plan --out` wrote.
        steps: Optimizer steps to report. A few more run, to measure memory and traffic.
        seed: Of the initial weights and of the generated samples.
        hostfile: Machines to run on; None, or this machine alone: here.
        data: `FILE.py:CALLABLE` that returns a map-style dataset; None: generated samples.
        model: Where the model is, if not where it was planned from.
        on_progress: Told of each step.
        timeout_s: Longest time without progress; the first step of a large model takes minutes.
        apart: Also time compute and messages by themselves, which `calibrate` needs.

    Raises:
        InputError: The folder is damaged or another run is under way in it, or this machine or the hostfile does not
            fit the plan.
        RunError: A rank failed, or nothing moved for `timeout_s`.
    """
    folder = folder.resolve()
    plan = _read_plan(folder)
    hosts = _remote_hosts(plan, hostfile)
    if not hosts:
        _check_devices(plan)
    with _alone_in(folder):
        logs = _fresh_logs(folder)
        options = [*_options(logs, steps, seed, data, model), *(["--calibrate"] if apart else [])]
        _launch(plan, launch_command(plan, folder, logs, hosts, options), logs, on_progress, timeout_s)
        return _write_report(plan, folder, logs)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds the folder, whose logs and report belong to one run at a time; the kernel lets go with this process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise InputError(
            f"another run is under way in {folder}; wait for its end, or run a copy of the folder"
        ) from error
    except OSError:
        pass  # A file system without locks has no way to tell.
    try:
        yield
    finally:
        os.close(handle)


def _options(logs: Path, steps: int, seed: int, data: str | None, model: str | None) -> list[str]:
    options = ["--steps", str(steps), "--seed", str(seed), "--record", "--report", str(logs / "report.json")]
    options += ["--watch", str(logs)]
    options += [] if data is None else ["--data", data]
    options += [] if model is None else ["--model", model]
    return options


def _launch(plan: Plan, command: list[str], logs: Path, on_progress: OnProgress | None, timeout_s: float) -> None:
    def on_event(event: dict[str, Any]) -> None:
        if on_progress is not None and event["event"] == "step":
            on_progress(event["step"] + 1, math.nan if event["loss"] is None else event["loss"], event["seconds"])

    try:
        code = watch_ranks(command, logs, _environment(plan), on_event, timeout_s)
    except NoProgressError as error:
        raise RunError(
            f"no step ended for {timeout_s:.0f} s; all ranks were ended, their logs are in {logs}"
        ) from error
    if code != 0:
        raise _failure(logs)


def _read_plan(folder: Path) -> Plan:
    plan = read_plan(folder)
    for name in (CONFIG_FILE, "launch.py", f"{CARRIED}/launch.py"):
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}; plan again with --out")
    return plan


def _remote_hosts(plan: Plan, hostfile: Path | None) -> tuple[Host, ...]:
    """Returns the hosts of the file; none when it names this machine alone, or is not given."""
    if hostfile is None:
        return ()
    _, per_node = processes(plan)
    hosts = read_hostfile(hostfile, per_node, equal=_has_groups_within(plan))
    launched = sum(host.slots for host in hosts)
    if launched != plan.hardware.world_size:
        raise InputError(
            f"{hostfile} has {launched} slots on {plural(len(hosts), 'host')}, but the plan is for "
            f"{plan.hardware.world_size} ranks; correct the file, or plan again for {launched}"
        )
    here = {"localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()}
    if len(hosts) == 1 and hosts[0].name in here:
        return ()
    if plan.hardware.device_kind == "cpu":
        raise InputError(
            f"nodes of {plan.hardware.name} are logical: all its ranks run on this machine; leave --hostfile"
        )
    return hosts


def _has_groups_within(plan: Plan) -> bool:
    """Whether ranks form groups smaller than the world, which were planned to end where nodes do."""
    degrees = {
        degree
        for each in plan.strategies
        for degree in (each.param_degree, each.secondary_degree, each.grad_degree, each.optim_degree)
    }
    return not degrees <= {1, plan.hardware.world_size}


def _check_devices(plan: Plan) -> None:
    if plan.hardware.device_kind == "cpu":
        return
    import torch

    num_nodes, per_node = processes(plan)
    found = torch.cuda.device_count()
    if num_nodes > 1:
        raise InputError(
            f"the plan is for {num_nodes} nodes of {per_node} GPUs, and this is one machine with {found}; give them by "
            f"--hostfile, or start launch.sh on each node (its head says how, with SLURM too)"
        )
    if found < per_node:
        raise InputError(
            f"the plan is for {per_node} GPUs ({plan.hardware.device}), and this machine has {found}; run it there, "
            "or plan for --hardware local-cpu"
        )


def _environment(plan: Plan) -> dict[str, str]:
    environment = dict(os.environ)
    if plan.hardware.device_kind == "cpu":
        threads = max(1, (os.cpu_count() or 1) // plan.hardware.world_size)
        environment.setdefault("OMP_NUM_THREADS", str(threads))
    return environment


def _fresh_logs(folder: Path) -> Path:
    logs = folder / LOGS
    try:
        shutil.rmtree(logs, ignore_errors=True)
        (folder / REPORT_FILE).unlink(missing_ok=True)
        logs.mkdir()
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}") from error
    return logs


def _failure(logs: Path) -> InputError | RunError:
    failure = find_failure(logs)
    if failure.is_usage:
        return InputError(failure.reason)
    who = "the run" if failure.rank is None else f"rank {failure.rank}"
    last = "".join(f"\n  {line}" for line in failure.last_lines)
    return RunError(f"{who} failed: {failure.reason}{last}\nThe logs of all ranks are in {logs}", failure.rank)


def _write_report(plan: Plan, folder: Path, logs: Path) -> RunReport:
    try:
        document = json.loads((logs / "report.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"the ranks ended without a report; their logs are in {logs}") from error
    steps = tuple(RunStep(**step) for step in document["steps"])
    warnings = list(document["warnings"])
    warnings += [
        f"the loss of step {number} is not finite"
        for number, step in enumerate(steps, 1)
        if not math.isfinite(step.loss)
    ]
    # The engine obeys the file; what is predicted is the plan's.
    if json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")) != plan.ds_config:
        predict = f"; `shardplan estimate --ds-config {CONFIG_FILE}` predicts the file" if plan.native_deepspeed else ""
        warnings.append(f"{CONFIG_FILE} is not as planned, and the predictions are the plan's{predict}")
    report = RunReport(
        steps=steps,
        measured=Figures.model_validate(document["measured"]),
        predicted=predicted_figures(plan.predicted),
        warnings=tuple(warnings),
        apart=TimedApart.model_validate(document["apart"]) if "apart" in document else None,
    )
    (folder / REPORT_FILE).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return report
