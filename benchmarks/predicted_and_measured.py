"""Runs every strategy that DeepSpeed has on this machine, and writes what was predicted beside what was measured.

    .venv/bin/python benchmarks/predicted_and_measured.py --out accuracy.md

Two nodes of two ranks on gloo, started through the `shardplan` command as a user would. Takes about half an hour on two
cores; `--quick` runs the smaller model alone, one micro-batch.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHARDPLAN = Path(sys.executable).with_name("shardplan")
NUM_RANKS = 4

STRATEGIES = {
    "stage 0": ["--degrees", "1,1,1"],
    "stage 1": ["--degrees", "1,1,4"],
    "stage 2": ["--degrees", "1,4,4"],
    "stage 3": ["--degrees", "4,4,4"],
    "stage 3, kept": ["--degrees", "4,4,4", "--secondary-degree", "1"],
    "hpZ of 2": ["--degrees", "4,4,4", "--secondary-degree", "2"],
}


@dataclass(frozen=True)
class Model:
    """What to run: MODEL with its options, and M of each run."""

    name: str
    spec: list[str]
    num_micro_batches: tuple[int, ...]


def models(folder: Path) -> tuple[Model, ...]:
    """Returns the models: a GPT of this project, and a Llama from a Hugging Face config."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    gpt = [f"{ROOT}/examples/gpt.py:gpt", "--sequence-length", "128"]
    large = ["--model-arg", "width=512", "--model-arg", "depth=8", "--model-arg", "vocab=32768"]
    return (
        Model("GPT, 23 M", gpt, (1, 3)),
        Model("GPT, 59 M", [*gpt, *large], (1,)),
        Model("Llama, 56 M", [str(folder / "config.json"), "--sequence-length", "128"], (1,)),
    )


def shardplan(*arguments: str) -> dict[str, Any]:
    """Runs the command and returns its document."""
    done = subprocess.run([SHARDPLAN, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"shardplan {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def row(model: Model, name: str, num_micro_batches: int, folder: Path) -> str:
    """Runs one strategy and returns its line of the table."""
    batch = ["--micro-batch-size", "2", "--global-batch-size", str(2 * num_micro_batches * NUM_RANKS)]
    machine = ["--hardware", "local-cpu", "--nodes", "2", "--ranks-per-node", "2", "--precision", "fp32"]
    plan = folder / "plan"
    fixed = [*STRATEGIES[name], "--recompute", "none", "--out", str(plan), "--force"]
    shardplan("estimate", *model.spec, *machine, *batch, *fixed)
    report = shardplan("run", str(plan), "--steps", "6")
    said, seen = report["predicted"], report["measured"]
    key = ("operation", "degree_from", "degree_to", "bytes", "count")
    traffic = [sorted(tuple(line[k] for k in key) for line in each["traffic"]) for each in (said, seen)]
    exact = "exact" if traffic[0] == traffic[1] else "**differs**"
    cells = [model.name, name, str(num_micro_batches), exact]
    for figure in ("peak_bytes", "at_rest_bytes", "init_peak_bytes"):
        one, other = said["memory"][figure], seen["memory"][figure]
        cells.append(f"{one / 2**20:,.1f} / {other / 2**20:,.1f} ({one / other - 1:+.1%})")
    one, other = said["step_s"], seen["step_s"]
    cells.append(f"{one * 1e3:,.0f} / {other * 1e3:,.0f} ({one / other - 1:+.0%})")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Runs all rows and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the page here instead of printing it")
    parser.add_argument("--quick", action="store_true", help="the smaller model alone, one micro-batch")
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = name
        shardplan("profile", "--quick", "--nodes", "2", "--ranks-per-node", "2")
        for model in models(folder)[: 1 if options.quick else None]:
            for num_micro_batches in model.num_micro_batches[: 1 if options.quick else None]:
                for strategy in STRATEGIES:
                    lines.append(row(model, strategy, num_micro_batches, folder))
                    print(lines[-1], file=sys.stderr, flush=True)
    page = PAGE.format(
        date=datetime.date.today().isoformat(),
        machine=f"{os.cpu_count()} cores, {platform.machine()}",
        python=platform.python_version(),
        rows="\n".join(lines),
    )
    if options.out:
        options.out.write_text(page)
    else:
        print(page)


PAGE = """# Predicted beside measured

Written by `benchmarks/predicted_and_measured.py` on {date}, on {machine}, Python {python}: real DeepSpeed on four
gloo ranks, fp32, AdamW, micro-batch 2, sequences of 128. Each cell is predicted / measured (difference). Traffic is
exact when bytes and messages of every operation over every kind of group are equal. Memory in MiB, of the fullest rank.

| model | strategy | M | traffic | peak in the step | at rest | while building | step, ms |
|---|---|---|---|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    main()
