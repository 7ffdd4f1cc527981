"""Records what training costs on this rank: memory, messages, seconds, around any loop and any engine.

Memory is recorded in the first steps, messages in the one after them, and nothing from then on, when steps are timed:
a recorder around a long run slows its first four steps alone. Memory and messages are apart because what sees each
message also changes how long autograd keeps tensors.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import asdict
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from runtime.record_memory import MemoryRecorder, MemoryUse
from runtime.record_traffic import RecordTraffic
from runtime.recording import Recording

NUM_MEMORY_STEPS = 3
"""The first makes the optimizer states, and the second is the first to prefetch: the third is surely a steady one."""
NUM_RECORDED_STEPS = NUM_MEMORY_STEPS + 1
_TIMED_STEPS = 1000
"""Of which the median is taken: the last ones."""


class Recorder:
    """Records one rank around any training loop: this runtime's, DeepSpeed's, FSDP's, DDP's, one's own.

    Example:
        with Recorder() as recorder:
            model, optimizer = build()
            recorder.built()
            for batch in batches:
                train_step(model, optimizer, batch)
                recorder.step()
        print(recorder.report().compare("my-plan"))
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        """Prepares a recorder; nothing is measured before it is entered.

        Args:
            device: Where training runs; None: the current CUDA device, or the CPU without one. On a CPU enter it before
                the model is built: torch counts what is allocated while a recorder is on, and nothing else.
        """
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self._memory = MemoryRecorder(self.device)
        self._traffic = RecordTraffic()
        self._recording: MemoryRecorder | RecordTraffic | None = None
        """Which of the two is on."""
        self.num_steps = 0
        """Optimizer steps that ended."""
        self._seconds: deque[float] = deque(maxlen=_TIMED_STEPS)
        self._last_end = 0.0

    def __enter__(self) -> Recorder:
        self._switch_to(self._memory)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._switch_to(None)

    def built(self) -> None:
        """Marks the end of building: the model and the optimizer exist, no step has run. Leave it out at will.

        Raises:
            RuntimeError: A step has run, or the recorder was not entered.
        """
        if self.num_steps or self._recording is None:
            raise RuntimeError("built() is for after the model is built and before the first step, within `with`")
        self._memory.built()

    def step(self) -> None:
        """Marks the end of one optimizer step: all its micro-batches and the update."""
        self.num_steps += 1
        if self._recording is self._memory:
            self._memory.step_ended()
        if self.num_steps == NUM_MEMORY_STEPS:
            self._switch_to(self._traffic)
        elif self.num_steps == NUM_RECORDED_STEPS:
            self._switch_to(None)
            self._wait()
        now = time.perf_counter()
        if self.num_steps > NUM_RECORDED_STEPS:
            self._seconds.append(now - self._last_end)
        self._last_end = now

    @property
    def has_all(self) -> bool:
        """Whether enough steps have run for a report."""
        return self.num_steps >= NUM_RECORDED_STEPS

    def report(self, *, all_ranks: bool = False) -> Recording:
        """Returns what was recorded.

        Args:
            all_ranks: Joins what all ranks recorded: the fullest one's memory, the slowest one's seconds, the first
                one's messages, with a warning where others sent other ones. Every rank has to call it then.

        Raises:
            RuntimeError: Fewer than 4 steps have run.
        """
        if not self.has_all:
            raise RuntimeError(
                f"a report needs {NUM_RECORDED_STEPS} steps, and {self.num_steps} have run: memory is recorded in the "
                f"first {NUM_MEMORY_STEPS}, messages in the next. Call recorder.step() after each optimizer step, and "
                "run more"
            )
        self._wait()
        world_size = dist.get_world_size() if dist.is_initialized() else 1
        seconds = statistics.median(self._seconds) if self._seconds else None
        own = Recording(self._memory.use(), self._traffic.totals(), seconds, world_size)
        return _joined(own) if all_ranks and world_size > 1 else own

    def _switch_to(self, recording: MemoryRecorder | RecordTraffic | None) -> None:
        if self._recording is not None:
            self._recording.__exit__(None, None, None)
        self._recording = recording
        if recording is not None:
            recording.__enter__()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _joined(own: Recording) -> Recording:
    gathered: list[Any] = [None] * own.world_size
    dist.all_gather_object(gathered, own)
    others = [rank for rank, each in enumerate(gathered) if each.traffic != gathered[0].traffic]
    memory: dict[str, Any] = {
        name: None if size is None else max(getattr(each.memory, name) for each in gathered)
        for name, size in asdict(own.memory).items()
    }
    return Recording(
        memory=MemoryUse(**memory),
        traffic=gathered[0].traffic,
        step_s=None if own.step_s is None else max(each.step_s for each in gathered),
        world_size=own.world_size,
        warnings=(f"ranks {others} sent other messages than rank 0, whose traffic this is",) if others else (),
    )
