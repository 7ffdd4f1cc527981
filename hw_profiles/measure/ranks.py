"""One rank among the others: its process group, and what every measuring part does with it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from hw_profiles.errors import ProfileError
from hw_profiles.measure.asked import Asked
from hw_profiles.measure.ending import ranks_text
from hw_profiles.measure.host_facts import interface_name, interface_towards
from hw_profiles.measure.roll_call import RollCall, store_at

Value = TypeVar("Value")


class Lost(Exception):  # noqa: N818 - reads as what happened
    """Others failed, or a message did not come: nothing that this rank did wrong."""


class Ranks:
    """This rank's way to the others. Numbers of one rank and of all ranks go through it, and each step is counted."""

    def __init__(self, rank: int, world_size: int, device: torch.device, roll: RollCall, patience_s: float) -> None:
        self.rank, self.world_size, self.device = rank, world_size, device
        self.roll = roll
        self.patience_s = patience_s

    def together(self) -> None:
        """Returns when all ranks have come here."""
        self.roll.step()
        dist.all_reduce(torch.zeros(1))

    def finish(self) -> None:
        """Returns when the device has done what it was given.

        Raises:
            Lost: it does not, as it waits for another rank.
        """
        if self.device.type != "cuda":
            return
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        until = time.monotonic() + self.patience_s
        while not done.query():  # type: ignore[no-untyped-call]
            if time.monotonic() > until:
                raise Lost(f"{self.device} did not finish within {self.patience_s:.0f} s")

    def slowest(self, values: Sequence[float]) -> list[float]:
        """Returns, for each of the values, the largest of all ranks."""
        self.roll.step()
        largest = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return [float(value) for value in largest.tolist()]

    def gathered(self, value: Value) -> list[Value]:
        """Returns the values of all ranks."""
        self.roll.step()
        values: list[Value] = [value] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def first(self, value: Value) -> Value:
        """Returns the first rank's value."""
        self.roll.step()
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]


def meet(asked: Asked) -> tuple[RollCall, Store]:
    """Connects to the ranks' store, which rank 0 keeps unless the launcher does.

    Raises:
        Lost: the store does not answer in time.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    keeps = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    prefix = f"shardplan/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        store = store_at(host, port, prefix, keeps=keeps, timeout_s=asked.start_s)
        roll = RollCall(
            lambda: store_at(host, port, prefix, keeps=False, timeout_s=asked.start_s), rank, world_size, keeps
        )
    except (dist.DistError, RuntimeError) as error:
        raise Lost(f"no store of the ranks at {host}:{port} (MASTER_ADDR, MASTER_PORT): {first_line(error)}") from error
    return roll, store


def start(asked: Asked, roll: RollCall, store: Store) -> Ranks:
    """Waits for all ranks and makes their process group: gloo, with NCCL beside it for accelerators."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    roll.step("the start of the ranks")
    device = own_device()
    if device.type == "cpu":
        store.set(f"without/{rank}", "")
        store.add("num without", 1)
    _await_all(roll, store, rank, world_size, asked.start_s)
    _refuse_mixed_kinds(store, world_size)
    interface = interface_towards(os.environ["MASTER_ADDR"])
    if device.type == "cuda" and interface is not None:
        # gloo only carries what ranks agree on here; by itself it takes the interface of the host's name.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    try:
        # All waits but those for the device end by this timeout; those of NCCL end sooner by `Ranks.finish`.
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=asked.patience_s),
        )
        # gloo connects its ranks when they first have something to say.
        dist.all_reduce(torch.zeros(1))
    except RuntimeError as error:
        if interface in (None, "lo") or interface_name() != "lo":
            raise
        raise Lost(
            f"{first_line(error)}. gloo listens on the loopback interface, as this host's name has no other address: "
            f"set GLOO_SOCKET_IFNAME={interface}"
        ) from error
    return Ranks(rank, world_size, device, roll, asked.patience_s)


def num_accelerators() -> int:
    """Returns the accelerators that this host shows; 0 on a host of CPUs."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def own_device() -> torch.device:
    """Returns this rank's device, and makes it the current one.

    Raises:
        ProfileError: more ranks are on this host than accelerators.
    """
    if not num_accelerators():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank >= num_accelerators():
        raise ProfileError(
            f"rank {local_rank} of this host has no accelerator of its own: {num_accelerators()} are visible; start at "
            "most that many ranks per node",
            key="ranks_per_node",
            value=local_rank + 1,
            expected=f"at most {num_accelerators()}",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, without the C++ trace that torch puts behind it."""
    lines = str(error).splitlines()
    if not lines:
        return type(error).__name__
    # gloo puts its own source file before the text, and advice behind it.
    return re.sub(r"^\[\S+\] ", "", lines[0]).partition(". This is typically")[0]


def _await_all(roll: RollCall, store: Store, rank: int, world_size: int, start_s: float) -> None:
    store.set(f"arrived/{rank}", "")
    keys = [f"arrived/{number}" for number in range(world_size)]
    until = time.monotonic() + start_s
    while not store.check(keys):
        if roll.is_called:
            raise Lost("another rank failed before it had started")
        if time.monotonic() > until:
            absent = tuple(number for number in range(world_size) if not store.check([keys[number]]))
            raise Lost(f"{ranks_text(absent)} did not start within {start_s:.0f} s")
        roll.touch()
        time.sleep(0.05)


def _refuse_mixed_kinds(store: Store, world_size: int) -> None:
    """Raises where some ranks have an accelerator and others have none: they have no transport in common."""
    if 0 < store.add("num without", 0) < world_size:
        without = tuple(number for number in range(world_size) if store.check([f"without/{number}"]))
        raise ProfileError(
            f"{ranks_text(without)} of {world_size} have no accelerator, and the others have one: start ranks on hosts "
            "of one kind, or hide the accelerators (CUDA_VISIBLE_DEVICES=)",
            key="device.kind",
            value=ranks_text(without),
            expected="accelerators on all ranks or on none",
        )
