"""All-gathers of parameters in stages, which are in flight while blocks compute.

On CUDA all stages are put on a stream of their own at once. On a CPU the next stage starts when the message is taken a
step further, at places in the step that are the same on all ranks: their messages must start in one order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

from runtime.fsdp.groups import Groups
from runtime.fsdp.hierarchical import all_gather


class Staged(dist.Work):
    """A message of several stages, of which each starts when the one before it is over."""

    def __init__(self, stages: Iterator[None], num_stages: int, device: torch.device) -> None:
        """Starts the first stage; on CUDA all."""
        super().__init__()
        self._stages = stages
        self._num_left = num_stages - 1
        self._over: torch.Event | None = None
        if device.type == "cuda":
            stream = _stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in stages:
                    pass
                self._over = stream.record_event()
            self._num_left = 0
        else:
            next(stages, None)

    def advance(self) -> None:
        """Waits for the stage in flight and starts the next one, where there is one left."""
        if self._num_left:
            self._num_left -= 1
            next(self._stages, None)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:  # noqa: ARG002
        """Waits for all stages: on CUDA the current stream does, not the host."""
        self._num_left = 0
        if self._over is not None:
            torch.cuda.current_stream().wait_event(self._over)
        for _ in self._stages:
            pass
        return True


class HierarchicalGather(AllGather):
    """Gathers blocks level by level: `FSDPModule.set_custom_all_gather` takes it, one for all blocks."""

    def __init__(self, groups: Groups) -> None:
        """Takes the groups of this rank."""
        self._groups = groups
        self._in_flight: list[Staged] = []

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns memory for the gathered parameters."""
        return torch.empty(tuple(size), dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Gathers shards, and takes the gathers in flight a stage further.

        Args:
            output_tensor: (ranks x elements,).
            input_tensor: (elements,): this rank's shard.
            group: The p or s ranks of a block; those of its first degree are contiguous.
            async_op: Return at once what has to be waited for.
        """
        stops = self._groups.stops(1, group.size(), hierarchical=True)
        work: Any = start_all_gather(output_tensor, input_tensor, self._groups, stops)
        for each in self._in_flight:
            each.advance()
        self._in_flight = [each for each in self._in_flight if each._num_left]
        if isinstance(work, Staged):
            self._in_flight.append(work)
        if async_op:
            return work  # type: ignore[no-any-return]
        work.wait()
        return None


def start_all_gather(full: Tensor, own: Tensor, groups: Groups, stops: Sequence[int]) -> Any:
    """Starts an all-gather between the first and the last of `stops`, and returns what is waited for."""
    stages = all_gather(full, own, groups, stops)
    if len(stops) > 2:
        return Staged(stages, len(stops) - 1, full.device)
    return dist.all_gather_single(full, own, group=groups.between(stops[0], stops[-1], "gather"), async_op=True)


@lru_cache(maxsize=8)
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
