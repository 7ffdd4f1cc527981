"""Which rank this process is, by the variables of the launcher that started it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hw_profiles.errors import ProfileError

_PASSED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Returns torch's variables for this rank if torchrun or srun started it, else None.

    Raises:
        ProfileError: variables are missing or are no numbers.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _checked({name: environment[name] for name in _PASSED if name in environment})
    if "SLURM_PROCID" not in environment or _number(environment, "SLURM_NTASKS", "1") < 2:
        return None
    num_tasks = _number(environment, "SLURM_NTASKS")
    return _checked(
        {
            "RANK": environment["SLURM_PROCID"],
            "WORLD_SIZE": environment["SLURM_NTASKS"],
            "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
            "LOCAL_WORLD_SIZE": str(max(num_tasks // _number(environment, "SLURM_NNODES", "1"), 1)),
            "MASTER_ADDR": _address(environment),
            # Jobs on one host need ports of their own.
            "MASTER_PORT": environment.get("MASTER_PORT")
            or str(20000 + _number(environment, "SLURM_JOB_ID", "0") % 10000),
        }
    )


def first_host(nodes: str) -> str | None:
    """Returns the first host of a SLURM node list such as `gpu[003-005,9],login`; None where it cannot be told.

    Source: SLURM's scontrol(1), hostlist expressions. Of several brackets in a name only the simple form is read.
    """
    found = re.match(r"([^\[\],\s]+)(?:\[(\d+)[\d,-]*\])?(?:,|$)", nodes.strip())
    return found[1] + (found[2] or "") if found else None


def _address(environment: Mapping[str, str]) -> str:
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST") or ""
    nodes = nodes or environment.get("SLURM_JOB_NODELIST", "")
    address = environment.get("MASTER_ADDR") or first_host(nodes) or environment.get("SLURM_LAUNCH_NODE_IPADDR")
    if not address:
        raise ProfileError(
            "srun started this rank, but no address of rank 0 is known: set MASTER_ADDR to the first host of the job",
            key="MASTER_ADDR",
            expected="a host name or address",
        )
    return address


def _checked(found: dict[str, str]) -> dict[str, str]:
    rank, world_size = _number(found, "RANK"), _number(found, "WORLD_SIZE")
    if not 0 <= rank < world_size:
        raise ProfileError(f"RANK {rank} is not below WORLD_SIZE {world_size}", key="RANK", value=rank)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in found:
            raise ProfileError(
                f"RANK and WORLD_SIZE are set, but {name} is not: start with torchrun, or unset both to measure alone",
                key=name,
                expected="set by the launcher",
            )
    _number(found, "MASTER_PORT")
    return found


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    text = environment.get(name, default)
    if not text.isdigit():
        raise ProfileError(f"{name} is {text!r}, which is no number", key=name, value=text, expected="a number")
    return int(text)
