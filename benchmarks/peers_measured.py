"""Peak memory that planners tell for a small model, beside what real DeepSpeed takes of this CPU's allocator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NUM_RANKS, MICRO_BATCH = 4, 2
MODEL = "GPT of 59 M parameters (`examples/gpt.py`, width 512, depth 8, vocabulary 32,768), sequences of 128"
GIVEN = [f"{ROOT}/examples/gpt.py:gpt", "--sequence-length", "128", "--precision", "bf16", "--recompute", "none"]
ARGUMENTS = {"width": 512, "depth": 8, "vocab": 32768}
DEGREES = {0: "1,1,1", 1: "1,1,4", 2: "1,4,4", 3: "4,4,4"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One stage: bytes that a run took of the fullest rank, and what was told of it before."""

    stage: int
    peak_bytes: int
    at_rest_bytes: int
    shardplan_bytes: int
    shardplan_at_rest_bytes: int
    estimator_bytes: int | None
    """Model states, by the estimator; None: it has no such stage."""
    autotuner_bytes: int
    """Model states, by the autotuner, with the activations that a run of it would have measured."""


def measured_rows() -> tuple[Measured, ...]:
    """Returns a row for each stage of DeepSpeed, each trained for three steps on gloo ranks here."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name
        _shardplan("profile", "--quick", "--nodes", "2", "--ranks-per-node", "2")
        return tuple(_row(stage, Path(name) / f"stage{stage}") for stage in DEGREES)


def _row(stage: int, folder: Path) -> Measured:
    arguments = [word for key, value in ARGUMENTS.items() for word in ("--model-arg", f"{key}={value}")]
    machine = ["--hardware", "local-cpu", "--nodes", "2", "--ranks-per-node", "2"]
    batch = ["--micro-batch-size", str(MICRO_BATCH), "--global-batch-size", str(MICRO_BATCH * NUM_RANKS)]
    fixed = ["--degrees", DEGREES[stage], "--out", str(folder), "--force"]
    planned = _shardplan("estimate", *GIVEN, *arguments, *machine, *batch, *fixed)
    report = _shardplan("run", str(folder), "--steps", "3")
    said, seen = report["predicted"]["memory"], report["measured"]["memory"]
    num_params, largest = _sizes()
    return Measured(
        stage,
        seen["peak_bytes"],
        seen["at_rest_bytes"],
        said["peak_bytes"],
        said["at_rest_bytes"],
        _estimated(stage, num_params, largest),
        _autotuned(stage, num_params) + planned["predicted"]["memory"]["components"]["activations"],
    )


def _sizes() -> tuple[int, int]:
    from examples.gpt import gpt

    model, _ = gpt(MICRO_BATCH, 128, **ARGUMENTS)
    owned = [sum(each.numel() for each in module.parameters(recurse=False)) for module in model.modules()]
    return sum(owned), max(owned)


def _estimated(stage: int, num_params: int, largest: int) -> int | None:
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    sizes = {"num_gpus_per_node": NUM_RANKS, "num_nodes": 1, "cpu_offload": False}
    if stage == 2:
        return int(stage_1_and_2.estimate_zero2_model_states_mem_needs(num_params, **sizes)[1])
    if stage == 3:
        told = stage3.estimate_zero3_model_states_mem_needs(num_params, largest, **sizes, cpu_offload_params=False)
        return int(told[1])
    return None


def _autotuned(stage: int, num_params: int) -> int:
    from peers_deepspeed import states_of_autotuner

    return int(states_of_autotuner(num_params, stage, 1, NUM_RANKS))


def _shardplan(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-c", "from cli import main; main()", *arguments, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if ended.returncode:
        raise SystemExit(f"shardplan {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr}")
    document: dict[str, Any] = json.loads(ended.stdout)
    return document
