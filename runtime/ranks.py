"""Joins the process group, whichever launcher started this process (torchrun, deepspeed or srun), and leaves it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

Engine = Literal["deepspeed", "fsdp"]


class LaunchError(Exception):
    """What the user has to mend before this plan can start: the text says what is wrong and what to try."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the others."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    """Ranks on this node."""
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that reports."""
        return self.rank == 0


def join(
    device_kind: Literal["cuda", "cpu"], world_size: int, ranks_per_node: int | None, engine: Engine = "deepspeed"
) -> Ranks:
    """Joins the process group and returns this process's place in it.

    Args:
        device_kind: `cuda` (NCCL) or `cpu` (gloo). On `cpu` nodes are logical, so that all ranks may share a machine.
        world_size: Ranks that the plan is for.
        ranks_per_node: Ranks that the plan needs on each node; None: any, and nodes may differ.
        engine: Which one trains; `fsdp` needs torch alone.

    Raises:
        LaunchError: No launcher's environment, other numbers of ranks than the plan's, too few devices, or no DeepSpeed
            for a plan that runs on it.
    """
    environment = rank_environment(os.environ)
    os.environ.update(environment)
    local_rank = int(environment["LOCAL_RANK"])
    local_world_size = int(environment["LOCAL_WORLD_SIZE"])
    _check_numbers(int(environment["WORLD_SIZE"]), local_world_size, world_size, ranks_per_node, device_kind)
    if device_kind == "cuda":
        if torch.cuda.device_count() < local_world_size:
            raise LaunchError(f"{local_world_size} ranks on a node with {torch.cuda.device_count()} visible GPUs")
        torch.cuda.set_device(local_rank)
    else:
        _share_cores(local_world_size)
    device = torch.device("cuda", local_rank) if device_kind == "cuda" else torch.device("cpu")
    backend = "nccl" if device_kind == "cuda" else "gloo"
    if engine == "deepspeed":
        _start_deepspeed(backend)
    else:
        dist.init_process_group(backend, device_id=device if device_kind == "cuda" else None)
    return Ranks(int(environment["RANK"]), world_size, local_rank, local_world_size, device)


def leave() -> None:
    """Ends this rank once all are done.

    With several gloo groups, torch 2.13 now and then aborts in the destructors that a normal exit runs ("terminate
    called without an active exception"), which the launcher would take for a failed run.
    """
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def rank_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT of this process.

    torchrun sets all six. DeepSpeed's launcher calls the fourth LOCAL_SIZE. srun sets none: they follow from SLURM_*.

    Raises:
        LaunchError: None of the three started this process.
    """
    if {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        found = {name: environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
        local = environment.get("LOCAL_WORLD_SIZE") or environment.get("LOCAL_SIZE") or environment["WORLD_SIZE"]
        return found | {"LOCAL_WORLD_SIZE": local}
    if {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"} <= environment.keys():
        return _from_slurm(environment)
    raise LaunchError("launch.py needs a launcher: use launch.sh, torchrun, deepspeed or srun")


def _from_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    # "4(x2)" is four tasks on each of two nodes; the first number is enough, as nodes must be equal.
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE") or ""
    local = re.match(r"\d+", tasks)
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or "127.0.0.1"
    # Every task of a job must come to the same port without asking; jobs that share a node must come to others.
    port = 20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_NTASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": local.group() if local else environment["SLURM_NTASKS"],
        "MASTER_ADDR": environment.get("MASTER_ADDR") or _first_host(nodes),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(port),
    }


def _first_host(nodes: str) -> str:
    """Returns the first host of a SLURM node list such as `gpu[003-005,9],login`."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?", nodes)
    if match is None:
        raise LaunchError(f"cannot read the node list {nodes!r}; set MASTER_ADDR to the first node")
    return match[1] + (match[2] or "")


def _check_numbers(
    launched: int, launched_per_node: int, planned: int, per_node: int | None, device_kind: Literal["cuda", "cpu"]
) -> None:
    if launched != planned:
        raise LaunchError(f"this plan is for {planned} ranks, but {launched} were launched; plan again for {launched}")
    if device_kind == "cuda" and per_node not in (None, launched_per_node):
        raise LaunchError(
            f"this plan is for {per_node} ranks per node, but {launched_per_node} were launched here; "
            f"launch {per_node} on each node, or plan again with --ranks-per-node {launched_per_node}"
        )


def _share_cores(local_world_size: int) -> None:
    """Has ranks on CPUs compute on their share of the cores, and send all they send through gloo."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    # With it, which only DeepSpeed's launcher sets, DeepSpeed all-reduces through shared memory of its own.
    os.environ.pop("LOCAL_SIZE", None)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // local_world_size))


def _start_deepspeed(backend: str) -> None:
    try:
        import deepspeed
    except ImportError as error:
        raise LaunchError(f"this plan runs on DeepSpeed, which cannot be imported here: {error}") from error
    if backend == "gloo":
        # A C++ extension for inference through shared memory, which DeepSpeed would compile for minutes before it
        # starts, and whose lock a killed rank leaves behind. Source: `build_shm_op`, deepspeed/comm/torch.py, 0.19.8.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(backend, verbose=False)
