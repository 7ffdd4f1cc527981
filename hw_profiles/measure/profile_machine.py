"""Measures the machine it runs on: as one of launched ranks (torchrun, srun), or by starting ranks here itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from hw_profiles.errors import ProfileError
from hw_profiles.fit.fit import fit
from hw_profiles.load import load, shipped_names
from hw_profiles.measure.measurement import Measurement
from hw_profiles.schema import HardwareProfile, Precision

Progress = Callable[[str], None]
"""Called with a few words on what is measured next."""

_LAST_LINES = 12


def profile_machine(
    num_nodes: int | None = None,
    ranks_per_node: int | None = None,
    quick: bool = False,
    progress: Progress | None = None,
    *,
    levels: tuple[int, ...] | None = None,
    journal: Path | None = None,
    fresh: bool = False,
) -> HardwareProfile | None:
    """Returns the measured profile; under a launcher, None on every rank but the first.

    Under torchrun or srun the launched ranks measure together, and by default nodes are the launcher's. Otherwise
    num_nodes x ranks_per_node ranks are started on this machine (default: one node with a rank per accelerator, or one
    rank without any): logical nodes, for planning and trying out on one host.

    Args:
        num_nodes: nodes of the profile.
        ranks_per_node: ranks of each.
        quick: fewer sizes and repetitions.
        progress: called with what is measured next, on the first rank.

    Raises:
        ProfileError: the ranks could not be started, failed, or are not as many as asked for.
    """
    say = progress or _silent
    launched = _launched(os.environ)
    if launched is not None:
        os.environ.update(launched)
        measurement = _as_one_rank(num_nodes, ranks_per_node, quick, say)
    else:
        measurement = _with_own_ranks(num_nodes or 1, ranks_per_node or _default_ranks(), quick, say)
    if launched is not None and launched["RANK"] != "0":
        return None
    return fit(measurement, _vendor_peak(measurement.device_name))


def _silent(_: str) -> None:
    pass


def _default_ranks() -> int:
    from hw_profiles.measure.measure_rank import num_accelerators

    return max(num_accelerators(), 1)


def _launched(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Returns torch's variables for this rank if a launcher started it, else None."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return {name: environment[name] for name in ("RANK", "WORLD_SIZE")}
    if int(environment.get("SLURM_NTASKS", "1")) < 2 or "SLURM_PROCID" not in environment:
        return None
    address = environment.get("MASTER_ADDR") or environment.get("SLURM_LAUNCH_NODE_IPADDR")
    if not address:
        raise ProfileError(
            "srun started this rank, but no address of rank 0 is known: set MASTER_ADDR to the first host of the job",
            key="MASTER_ADDR",
            expected="a host name or address",
        )
    num_tasks = int(environment["SLURM_NTASKS"])
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_NTASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(num_tasks // int(environment.get("SLURM_NNODES", "1"))),
        "MASTER_ADDR": address,
        # Jobs on one host need ports of their own.
        "MASTER_PORT": environment.get("MASTER_PORT", str(20000 + int(environment.get("SLURM_JOB_ID", "0")) % 10000)),
    }


def _as_one_rank(num_nodes: int | None, ranks_per_node: int | None, quick: bool, say: Progress) -> Measurement:
    """Measures as one of the launched ranks, in this process."""
    from hw_profiles.measure.measure_rank import measure_rank

    world_size = int(os.environ["WORLD_SIZE"])
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", str(world_size))) if ranks_per_node is None else ranks_per_node
    if world_size % ranks:
        raise ProfileError(
            f"{world_size} launched ranks are not whole nodes of {ranks}: every node needs equally many ranks",
            key="ranks_per_node",
            value=ranks,
            expected=f"a divisor of {world_size}",
        )
    return measure_rank(num_nodes or world_size // ranks, ranks, quick, say)


def _with_own_ranks(num_nodes: int, ranks_per_node: int, quick: bool, say: Progress) -> Measurement:
    """Starts the ranks on this machine, waits for them, and reads what they found."""
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "measurement.json"), Path(folder, "errors.log")
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(num_nodes * ranks_per_node), "-m", "hw_profiles.measure.measure_rank"),
            *("--nodes", str(num_nodes), "--ranks-per-node", str(ranks_per_node), "--out", str(out)),
            *(("--quick",) if quick else ()),
        ]
        # One thread per rank, as in training with a rank per core or more.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        with log.open("w") as errors:
            code = _followed(command, environment, errors, say)
        if code or not out.is_file():
            raise ProfileError(_failure(code, log.read_text(errors="replace")))
        return Measurement.model_validate_json(out.read_text())


def _followed(command: list[str], environment: dict[str, str], errors: IO[str], say: Progress) -> int:
    """Runs the command, passes its output on line by line, and returns its exit code."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
    try:
        for line in process.stdout or ():
            say(line.rstrip())
        return int(process.wait())
    finally:
        # Only when interrupted is it still running; it then ends its ranks itself.
        process.terminate()
        process.wait()


def _failure(code: int, log: str) -> str:
    """Returns the ranks' own error where one is a ProfileError, else the last lines before the launcher's summary."""
    told = re.search(r"hw_profiles\.errors\.ProfileError: (.+)", log)
    if told:
        return told.group(1)
    ranks_log = re.split(r"^[WE]\d+ .*torch/distributed/elastic", log, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in (ranks_log if ranks_log.strip() else log).splitlines() if line.strip()]
    return f"measuring failed with exit code {code}; its last lines:\n  " + "\n  ".join(lines[-_LAST_LINES:])


def _vendor_peak(device_name: str) -> dict[Precision, float] | None:
    """Returns the datasheet's peak of a device that a shipped profile has; torch's name decides."""
    for name in shipped_names():
        profile = load(name)
        if profile.device.kind == "cuda" and profile.device.name == device_name:
            return profile.known_device.peak_flop_per_s
    return None
