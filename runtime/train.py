"""Trains some optimizer steps, and measures them: losses and seconds always, memory and traffic when asked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from runtime.data import Samples, samples_of_rank
from runtime.fsdp.groups import Groups
from runtime.load_model import cast_floats, loss_of, map_tensors
from runtime.ranks import Ranks
from runtime.record_memory import MemoryRecorder
from runtime.record_traffic import RecordedMessage, RecordTraffic
from runtime.settings import Settings
from runtime.time_compute import TimeCompute
from runtime.time_messages import time_messages

WARM_UP_STEPS = 3
"""Steps before the timed ones. The first makes the optimizer states, and DeepSpeed's stage 3 records the order of
modules in it; the second is the first to prefetch. Memory is recorded in these steps, and no later."""

COMPUTED_STEPS = 5
"""Steps of which compute is timed."""

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step, over all ranks."""

    loss: float
    """Mean over the global batch."""
    seconds: float
    """Of the slowest rank, without making the batch."""


class Trainer:
    """Runs optimizer steps of an engine, each on the next global batch."""

    def __init__(self, engine: Any, samples: Samples, settings: Settings, ranks: Ranks) -> None:
        """Takes an engine of either kind and the samples to train it on."""
        self.engine = engine
        self._samples = samples
        self._settings = settings
        self._ranks = ranks
        self._num_steps = 0

    def skip(self, num_steps: int) -> None:
        """Leaves out the batches of the first steps, which another run has done."""
        self._num_steps = num_steps

    def step(self) -> Step:
        """Runs one optimizer step on all ranks together."""
        loss, seconds = self.local_step()
        return self.over_ranks(loss, seconds)

    def local_step(self) -> tuple[torch.Tensor, float]:
        """Runs one optimizer step with no message but the engine's own; returns this rank's loss and seconds."""
        batches = [self._batch(m) for m in range(self._settings.num_micro_batches)]
        total = torch.zeros((), dtype=torch.float64)
        self._wait()
        start = time.perf_counter()
        losses = [self._micro_batch(batches.pop(0)) for _ in range(len(batches))]
        self._wait()
        seconds = time.perf_counter() - start
        for loss in losses:
            total += loss.double().cpu() / len(losses)
        self._num_steps += 1
        return total, seconds

    def _micro_batch(self, batch: dict[str, Any]) -> torch.Tensor:
        on_device = map_tensors(batch, lambda tensor: tensor.to(self._ranks.device))
        loss = loss_of(self.engine(**on_device))
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach()

    def _batch(self, micro_batch: int) -> dict[str, Any]:
        indices = samples_of_rank(
            self._num_steps,
            micro_batch,
            self._ranks.rank,
            micro_batch_size=self._settings.micro_batch_size,
            num_micro_batches=self._settings.num_micro_batches,
            world_size=self._ranks.world_size,
        )
        return cast_floats(self._samples.batch(indices), _DTYPES[self._settings.precision])

    def _wait(self) -> None:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)

    def over_ranks(self, loss: torch.Tensor, seconds: float) -> Step:
        """Joins what `local_step` gave on each rank."""
        mean = (loss / self._ranks.world_size).to(self._ranks.device)
        slowest = torch.tensor(seconds, dtype=torch.float64, device=self._ranks.device)
        dist.all_reduce(mean)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return Step(mean.item(), slowest.item())


def train(trainer: Trainer, num_steps: int, on_step: Callable[[int, Step], None], first: int = 0) -> dict[str, Any]:
    """Trains the steps from `first` to `num_steps` and returns {steps}."""
    steps = []
    for index in range(first, num_steps):
        steps.append(trainer.step())
        on_step(index, steps[-1])
    return {"steps": [asdict(step) for step in steps]}


def measure(
    make_trainer: Callable[[], Trainer],
    num_steps: int,
    ranks: Ranks,
    on_step: Callable[[int, Step], None],
    *,
    apart: bool = False,
) -> dict[str, Any]:
    """Trains and returns {steps, measured, warnings}; `step_s` is the median of steps in which nothing is recorded.

    Runs WARM_UP_STEPS + 1 steps at least and one more for the traffic; of all, the first `num_steps` are reported. For
    `apart`, COMPUTED_STEPS more are timed without the waiting for messages, and the messages by themselves.

    Args:
        make_trainer: Builds model and engine; the memory of that is recorded too.
        num_steps: Steps to report.
        ranks: This process.
        on_step: Told of each step to report.
        apart: Returns {apart} too: seconds of compute and of messages.
    """
    steps: list[Step] = []
    with MemoryRecorder(ranks.device) as memory:
        trainer = make_trainer()
        memory.built()
        for index in range(WARM_UP_STEPS):
            loss, seconds = trainer.local_step()
            memory.step_ended()
            steps.append(trainer.over_ranks(loss, seconds))
            if index < num_steps:
                on_step(index, steps[-1])
    for index in range(WARM_UP_STEPS, max(num_steps, WARM_UP_STEPS + 1)):
        steps.append(trainer.step())
        if index < num_steps:
            on_step(index, steps[-1])
    with RecordTraffic() as traffic:
        trainer.local_step()
    timed = {"apart": _apart(trainer, traffic.messages, ranks)} if apart else {}
    use = memory.use()
    figures = {
        "memory": {"peak_bytes": use.peak_bytes, "at_rest_bytes": use.at_rest_bytes},
        "init_peak_bytes": use.init_peak_bytes,
        "traffic": [asdict(row) for row in traffic.totals()],
    }
    return {
        "steps": [asdict(step) for step in steps[:num_steps]],
        **timed,
        **_worst(figures, statistics.median(step.seconds for step in steps[WARM_UP_STEPS:])),
    }


def _apart(trainer: Trainer, messages: Sequence[RecordedMessage], ranks: Ranks) -> dict[str, Any]:
    """Returns the mean rank's seconds of compute in each of some steps, and the seconds of each message."""
    computed: list[float] = []
    for _ in range(COMPUTED_STEPS):
        with TimeCompute(ranks.device) as timed:
            _, seconds = trainer.local_step()
        computed.append(timed.compute_s(seconds))
    gathered: list[list[float]] = [[] for _ in range(ranks.world_size)]
    dist.all_gather_object(gathered, computed)
    # Ranks that a plan does not treat alike send other messages; the first one's are what was planned.
    chosen: list[Any] = [messages]
    dist.broadcast_object_list(chosen, src=0)
    return {
        "compute_s": [statistics.fmean(of_step) for of_step in zip(*gathered, strict=True)],
        "messages": [asdict(each) for each in time_messages(chosen[0], Groups(), ranks.device)],
    }


def _worst(figures: dict[str, Any], step_s: float) -> dict[str, Any]:
    """Joins the ranks' figures: the fullest rank's memory, and the first rank's traffic when all have the same."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, figures)
    memory = {key: max(each["memory"][key] for each in gathered) for key in ("peak_bytes", "at_rest_bytes")}
    memory["init_peak_bytes"] = max(each["init_peak_bytes"] for each in gathered)
    others = [rank for rank, each in enumerate(gathered) if each["traffic"] != gathered[0]["traffic"]]
    warnings = [f"ranks {others} sent other messages than rank 0, whose traffic this is"] if others else []
    return {
        "measured": {"step_s": step_s, "memory": memory, "traffic": gathered[0]["traffic"]},
        "warnings": warnings,
    }
