"""The command that starts all ranks of a plan: here by torchrun, on several hosts over ssh."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.errors import InputError
from planner.plan import Plan
from planner.run.hostfile import Host, hostfile_text

_EXPORTED = ("NCCL_", "UCX_", "PYTHONPATH", "OMP_NUM_THREADS")
"""Beginnings of the variables that ranks on other hosts get too; DeepSpeed's launcher exports the like."""
_PORT = "29500"
"""torchrun's own default."""


def launch_command(plan: Plan, folder: Path, logs: Path, hosts: Sequence[Host], options: Sequence[str]) -> list[str]:
    """Returns the words of the command.

    Args:
        plan: What the folder holds.
        folder: With `launch.py`; on several hosts it is at the same path on each.
        logs: Where launchers write.
        hosts: Machines to run on; none: this one.
        options: Of `launch.py`.

    Raises:
        InputError: pdsh, by which several hosts are reached, is not installed.
    """
    script = str(folder / "launch.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    if not hosts:
        here = ["--standalone", "--nproc-per-node", str(plan.hardware.world_size), "--log-dir", str(logs)]
        return [*torchrun, *here, "--redirects", "3", script, *options]
    if shutil.which("pdsh") is None:
        names = ", ".join(host.name for host in hosts)
        raise InputError(
            f"pdsh, by which several hosts are reached, is not installed here. Install it, or on each of {names} run "
            f"MASTER_ADDR={hosts[0].name} NODE_RANK=<0 to {len(hosts) - 1}> {folder / 'launch.sh'}"
        )
    if plan.engine == "deepspeed":
        clean = logs / "hostfile"
        clean.write_text(hostfile_text(tuple(hosts)), encoding="utf-8")
        return ["deepspeed", "--hostfile", str(clean), "--launcher", "pdsh", "--force_multi", script, *options]
    return _by_pdsh(torchrun, hosts, [script, *options])


def _by_pdsh(torchrun: Sequence[str], hosts: Sequence[Host], script: Sequence[str]) -> list[str]:
    """Returns the command that runs torchrun on each host; pdsh writes the number of the host in the place of %n."""
    exports = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_EXPORTED)]
    before = ["env", *exports, *torchrun, "--nnodes", str(len(hosts)), "--master-addr", hosts[0].name]
    before += ["--master-port", os.environ.get("MASTER_PORT", _PORT)]
    slots = " ".join(str(host.slots) for host in hosts)
    remote = (
        f"cd {_quoted([str(Path.cwd())])} && set -- {slots} && shift %n && "
        f'{_quoted(before)} --node-rank %n --nproc-per-node "$1" {_quoted(script)}'
    )
    names = ",".join(host.name for host in hosts)
    # -S: the exit code is the greatest of the hosts'.
    return ["pdsh", "-S", "-R", "ssh", "-f", str(len(hosts)), "-w", names, remote]


def _quoted(words: Sequence[str]) -> str:
    return shlex.join(words).replace("%", "%%")
