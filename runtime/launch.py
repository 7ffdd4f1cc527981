"""The body of the emitted `launch.py`: one rank of a planned run."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runtime.model_errors import UsageError
from runtime.prepare import prepare_engine, prepare_reference, prepare_samples
from runtime.ranks import LaunchError, Ranks, join, leave
from runtime.settings import Options, Settings, parse_options, read_settings
from runtime.train import Step, Trainer, measure, train
from runtime.without_noise import without_noise


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Runs this rank of the plan in `folder` and returns the exit code: 0, or 2 for what the user has to mend."""
    options = parse_options(arguments)
    if options.watch is not None:
        _end_with_parent()
    try:
        settings = read_settings(folder, options.model)
        ranks = join(settings.device_kind, settings.world_size, settings.needed_ranks_per_node, settings.engine)
        with without_noise():
            report = _run(settings, options, ranks)
    except (LaunchError, UsageError) as error:
        _note_failure(options, str(error), usage=True)
        print(f"launch.py: {error}", file=sys.stderr)  # noqa: T201 - its only channel
        return 2
    except Exception as error:
        _note_failure(options, f"{type(error).__name__}: {error}", usage=False)
        raise
    if ranks.is_first and options.report is not None:
        _write(options.report, report)
    leave()
    return 0


def _run(settings: Settings, options: Options, ranks: Ranks) -> dict[str, Any]:
    progress = _Progress(options, ranks)
    progress.tell({"event": "started", "ranks": ranks.world_size})
    samples = prepare_samples(settings, options, ranks)
    # On the CPU the recorder counts host memory, so what only the host holds is made before it starts.
    reference = [prepare_reference(settings, options, ranks)]

    def make_trainer() -> Trainer:
        engine = prepare_engine(settings, options, ranks, reference)
        progress.tell({"event": "built"})
        return Trainer(engine, samples, settings, ranks)

    if options.record:
        return measure(make_trainer, options.steps, ranks, progress.step, apart=options.calibrate)
    if options.checkpoint is not None:
        return _train_with_checkpoints(make_trainer, options, options.checkpoint, progress)
    return train(make_trainer(), options.steps, progress.step)


def _train_with_checkpoints(
    make_trainer: Callable[[], Trainer], options: Options, folder: Path, progress: _Progress
) -> dict[str, Any]:
    # It imports what a run without checkpoints has no need of.
    from runtime.checkpoint.of_run import RunCheckpoints

    trainer = make_trainer()
    checkpoints = RunCheckpoints(trainer.engine, folder, options.checkpoint_every)
    done = checkpoints.resume() if options.resume else 0
    trainer.skip(done)

    def on_step(index: int, step: Step) -> None:
        progress.step(index, step)
        checkpoints.after_step(index + 1)

    report = train(trainer, options.steps, on_step, done)
    checkpoints.finish(max(options.steps, done))
    return report


class _Progress:
    """Tells the watcher, as JSON lines, and the terminal what the first rank has done."""

    def __init__(self, options: Options, ranks: Ranks) -> None:
        self._path = options.watch / "progress.jsonl" if options.watch is not None and ranks.is_first else None
        self._speaks = ranks.is_first

    def step(self, index: int, step: Step) -> None:
        self.tell({"event": "step", "step": index, "loss": _finite(step.loss), "seconds": step.seconds})
        if self._speaks:
            print(f"step {index + 1}: loss {step.loss:.6f}, {step.seconds:.4f} s", flush=True)  # noqa: T201 - its only channel

    def tell(self, event: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")


def _finite(value: float) -> float | None:
    """JSON has no word for a loss that is not finite."""
    return value if math.isfinite(value) else None


def _write(path: Path, report: dict[str, Any]) -> None:
    steps = [{**step, "loss": _finite(step["loss"])} for step in report["steps"]]
    unfinished = path.with_name(path.name + ".partial")
    unfinished.write_text(json.dumps({**report, "steps": steps}, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _note_failure(options: Options, message: str, *, usage: bool) -> None:
    if options.watch is None:
        return
    rank = os.environ.get("RANK", "0")
    failure = {"rank": int(rank), "time": time.time(), "message": message, "usage": usage}
    text = json.dumps({**failure, "trace": traceback.format_exc()})
    (options.watch / f"failure-{rank}.json").write_text(text, encoding="utf-8")


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone, so that a killed launcher leaves nothing behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()
