"""Ranks of a gloo process group that stay up, and run one function after the other.

They are forked from a server that has imported torch once, so that eight of them are there in a second or two.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
# FSDP2 imports the compiler with its first forward: seconds, which ranks would spend each for itself.
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed.fsdp", "torch.distributed.tensor", "torch._dynamo"])


class GlooRanks:
    """Example: `with GlooRanks(8) as ranks: results = ranks.run(function, argument)`, one result per rank."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._folder = tempfile.TemporaryDirectory()
        self._ends: list[Connection] = []
        self._processes: list[Any] = []

    def __enter__(self) -> GlooRanks:
        store = str(Path(self._folder.name) / "store")
        for rank in range(self._num_ranks):
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_serve, args=(rank, self._num_ranks, store, theirs), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    @property
    def pids(self) -> list[int]:
        """Process numbers by rank."""
        return [process.pid for process in self._processes]

    def run(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 300) -> list[Any]:
        """Runs `function(*arguments)` on all ranks at once, and returns what each returned.

        Raises:
            AssertionError: A rank failed, with its traceback, or none answered in time.
        """
        for end in self._ends:
            end.send((function, arguments))
        results, failures = [], []
        for rank, end in enumerate(self._ends):
            if not end.poll(timeout_s if not failures else 5):
                failures.append(f"rank {rank} did not answer")
                continue
            try:
                failed, result = end.recv()
            except EOFError:
                failed, result = True, "died"
            results.append(result)
            if failed:
                failures.append(f"rank {rank}: {result}")
        assert not failures, "\n".join(failures[:2])
        return results


def _serve(rank: int, num_ranks: int, store: str, end: Connection) -> None:
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=num_ranks)
    while True:
        try:
            function, arguments = end.recv()
        except EOFError:
            os._exit(0)
        try:
            end.send((False, function(*arguments)))
        except Exception:
            end.send((True, traceback.format_exc()))
