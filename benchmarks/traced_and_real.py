"""Traces every model of the zoo and runs it for real on this CPU, and writes how far apart the two are.

    .venv/bin/python benchmarks/traced_and_real.py --out docs/traced_models.md --results traced_and_real.jsonl

Each model has a process of its own, with a time limit; in it the step is verified in fp32 and under bf16 autocast, with
and without recomputation. Takes about half an hour on one core. `--results` keeps what was measured: a second call
measures only what is missing, so that a run can be stopped, or done in parts (`--names`, `--families`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.traced_models_page import MODES, page  # noqa: E402 - finds the repository by the line above
from planner.model_graph import ModelSource  # noqa: E402

TIME_LIMIT_S = 240
MICRO_BATCH_SIZE = 2


def main() -> None:
    """Measures what is missing and writes the page."""
    arguments = _arguments()
    results = Path(arguments.results)
    known = _read(results)
    names = _names(arguments)
    missing = [name for name in names if name not in known]
    if missing:
        _import_once()
    for position, name in enumerate(missing):
        started = time.perf_counter()
        known[name] = _in_own_process(name)
        with results.open("a") as file:
            file.write(json.dumps({"name": name, "modes": known[name]}) + "\n")
        print(f"{position + 1}/{len(missing)} {name} {time.perf_counter() - started:.1f} s {_summary(known[name])}")
    if arguments.out:
        Path(arguments.out).write_text(page(known))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="the page to write, in Markdown")
    parser.add_argument("--results", required=True, help="JSON lines: read where it exists, and added to")
    parser.add_argument("--names", help="only these entries, separated by commas")
    parser.add_argument("--families", help="only entries of these families, separated by commas")
    return parser.parse_args()


def _names(arguments: argparse.Namespace) -> list[str]:
    from tests.zoo.registry import entries

    chosen = arguments.names.split(",") if arguments.names else list(entries())
    if arguments.families:
        families = arguments.families.split(",")
        chosen = [name for name in chosen if entries()[name].family in families]
    return chosen


def _read(results: Path) -> dict[str, dict[str, Any]]:
    if not results.is_file():
        return {}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return {line["name"]: line["modes"] for line in lines}


def _import_once() -> None:
    """What the processes share is imported before they part."""
    import diffusers  # noqa: F401
    import peft  # noqa: F401
    import torch
    import transformers  # noqa: F401

    import planner.verify  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()  # The collector of a process need not look through what they share.
    warnings.simplefilter("ignore")


def _in_own_process(name: str) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(TIME_LIMIT_S)
        with os.fdopen(write, "w") as file:
            for autocast in (None, "bf16"):
                for mode, found in _verified(name, autocast).items():
                    file.write(json.dumps({mode: found}) + "\n")
                file.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        lines = file.read().splitlines()
    _, status = os.waitpid(child, 0)
    measured = {mode: value for line in lines for mode, value in json.loads(line).items()}
    ended = "no end within the time limit" if os.WTERMSIG(status) == signal.SIGALRM else f"ended with {status}"
    return {mode: measured.get(mode, {"error": ended}) for mode in MODES}


def _verified(name: str, autocast: Literal["bf16"] | None) -> dict[str, Any]:
    """Returns the two modes, without recomputation and with it, of one trace."""
    from planner.trace import trace
    from planner.verify import verify
    from tests.zoo.registry import spec

    modes = [mode for mode in MODES if ("autocast" in mode) == (autocast is not None)]
    source = ModelSource(spec=spec(name), kind="file")
    found: dict[str, Any] = {}
    graph, trace_s = None, 0.0
    for mode in modes:
        # A model that cannot be traced, or run, is a row of the table.
        try:
            if graph is None:
                started = time.perf_counter()
                graph = trace(source, precision="fp32", device="cpu", autocast=autocast)
                trace_s = time.perf_counter() - started
            again = "recomputed" in mode
            verified = verify(
                source,
                precision="fp32",
                autocast=autocast,
                micro_batch_size=MICRO_BATCH_SIZE,
                recompute=again,
                graph=graph,
            )
            found[mode] = {**verified.model_dump(mode="json"), "trace_s": trace_s}
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(line.filename).name}:{line.lineno}"
            found[mode] = {"error": f"{type(error).__name__}: {error}", "line": where}
            if graph is None:
                found[mode] |= _does_not_run(source, autocast)
    return found


def _does_not_run(source: ModelSource, autocast: Literal["bf16"] | None) -> dict[str, Any]:
    """Returns what becomes of the error of a model that cannot be traced and does not run for real either."""
    from planner.verify.real_step import real_model, real_step

    try:
        real_step(real_model(source, MICRO_BATCH_SIZE, "fp32", None), autocast, ())
    except Exception as error:
        return {"error": f"RunError: the model itself does not run: {type(error).__name__}: {error}"}
    return {}


def _summary(modes: dict[str, Any]) -> str:
    parts = []
    for mode, found in modes.items():
        if "error" in found:
            parts.append(f"{mode}: {found['error'][:160]}")
            continue
        off = [
            f"{c['name']} {c['traced']}/{c['real']}"
            for c in found["comparisons"]
            if c["is_promised"] and abs(c["traced"] - c["real"]) > c["tolerance"] * c["real"]
        ]
        replayed = found["loss_replayed"]
        if replayed is None or abs(replayed - found["loss_eager"]) > found["loss_tolerance"] * abs(found["loss_eager"]):
            off.append(f"loss {replayed}/{found['loss_eager']}")
        parts.append(f"{mode}: {', '.join(off) or 'ok'}")
    return " | ".join(parts)


if __name__ == "__main__":
    main()
