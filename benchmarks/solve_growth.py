"""Measures how the choice grows: seconds and memory against the number of ranks and of layers.

    .venv/bin/python benchmarks/solve_growth.py --out docs/solve_growth.md [--plot docs/solve_growth.png]

The model has the shape of Llama-3.1-405B with fewer or all of its 126 layers, traced here from its config. Each row is
a process of its own that reads the saved trace, fills the cost table, chooses, sets the alternatives beside the choice,
and finds the whole Pareto front; its memory is the most that this process held. A sweep over all sizes, from 8 ranks to
16,384, is a process of its own too. The plot needs matplotlib, which this project does not.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

RANKS = (8, 64, 512, 2048, 8192, 16384)
LAYERS = (8, 32, 64, 126)
ENGINES_SWEPT: tuple[Literal["deepspeed", "auto"], ...] = ("deepspeed", "auto")
SWEPT = tuple(8 << doublings for doublings in range(12))
SAMPLES_PER_RANK, SEQUENCE_LENGTH, HARDWARE, RANKS_PER_NODE = 16, 8192, "dgx-h100", 8
LLAMA_405B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
"""Source: huggingface.co/meta-llama/Llama-3.1-405B, config.json."""

Row = dict[str, Any]


def main() -> None:
    """Measures all rows, or the one that is asked for by another process of this command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="the page to write; default: standard output")
    parser.add_argument("--plot", type=Path, help="a PNG, where matplotlib is there")
    parser.add_argument("--row", nargs=2, metavar=("GRAPH", "RANKS"), help=argparse.SUPPRESS)
    parser.add_argument("--swept", type=Path, metavar="GRAPH", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        print(json.dumps(measured(Path(asked.row[0]), int(asked.row[1]))))
        return
    if asked.swept:
        print(json.dumps(measured_sweep(asked.swept)))
        return
    if asked.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib, which is not installed here; leave it out for the table alone")
    rows, swept = all_rows()
    if asked.out:
        asked.out.write_text(page(rows, swept), encoding="utf-8")
    else:
        print(page(rows, swept))
    if asked.plot:
        plot(rows, asked.plot)


def all_rows() -> tuple[list[Row], Row]:
    """Returns a row for each number of layers and of ranks, and the sweep of all layers."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for num_layers in LAYERS:
            graph = Path(folder) / f"{num_layers}.json"
            traced_s = trace(num_layers, graph)
            for num_ranks in RANKS:
                found = in_a_process("--row", str(graph), str(num_ranks))
                rows.append({"layers": num_layers, "ranks": num_ranks, "trace_s": traced_s, **found})
                print(rows[-1], file=sys.stderr)
        return rows, in_a_process("--swept", str(graph))


def in_a_process(*arguments: str) -> Row:
    """Returns what this command measures in a process of its own, with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: Row = json.loads(ended.stdout)
    return found


def trace(num_layers: int, out: Path) -> float:
    """Saves the trace of the shape with so many layers; returns the seconds of the command."""
    config = out.with_suffix("") / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({**LLAMA_405B, "num_hidden_layers": num_layers}))
    started_s = time.perf_counter()
    length = ["--sequence-length", str(SEQUENCE_LENGTH)]
    command = [str(Path(sys.executable).with_name("shardplan")), "trace", str(config), *length, "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started_s


def measured(graph: Path, num_ranks: int) -> Row:
    """Returns the processor's seconds for each stage, the sizes of what it found, and the most memory it held."""
    from hw_profiles.load import load
    from planner.choose.front import front
    from planner.choose.search import search
    from planner.choose.setting import setting
    from planner.choose.space import whole_space
    from planner.job import Job
    from planner.read.saved_graph import read_graph
    from planner.solve import solve

    model = read_graph(str(graph))
    assert model is not None
    job = Job(global_batch_size=SAMPLES_PER_RANK * num_ranks, sequence_length=SEQUENCE_LENGTH, engine="deepspeed")
    asked = setting(model, load(HARDWARE, num_ranks // RANKS_PER_NODE), job)
    clock = [time.process_time()]
    table = whole_space(asked)
    clock.append(time.process_time())
    solution = solve(table)
    clock.append(time.process_time())
    search(asked, table)
    clock.append(time.process_time())
    points = front(table)
    clock.append(time.process_time())
    table_s, solve_s, search_s, front_s = (after - before for before, after in pairwise(clock))
    return {
        "combinations": table.num_strategies,
        "table_s": table_s,
        "solve_s": solve_s,
        "beside_s": max(0.0, search_s - solve_s),
        "status": "nothing fits" if solution is None else solution.status.lower(),
        "points": len(points),
        "front_s": front_s,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def measured_sweep(graph: Path) -> Row:
    """Returns seconds of a sweep by engine, with one global batch for all sizes, and the most memory that it held.

    Sizes are planned on all cores at once, as the command does.
    """
    from hw_profiles.load import load
    from planner import Plan, sweep
    from planner.job import Job
    from planner.read.saved_graph import read_graph

    model = read_graph(str(graph))
    assert model is not None
    profile = load(HARDWARE, SWEPT[-1] // RANKS_PER_NODE)
    found: Row = {}
    for engine in ENGINES_SWEPT:
        job = Job(global_batch_size=SWEPT[-1], sequence_length=SEQUENCE_LENGTH, engine=engine)
        started_s, cpu_s = time.perf_counter(), _processor_s()
        answers = sweep(model, profile, job, SWEPT, num_processes=os.cpu_count() or 1)
        found[engine] = {
            "wall_s": time.perf_counter() - started_s,
            "processor_s": _processor_s() - cpu_s,
            "plans": sum(isinstance(answer, Plan) for answer in answers),
        }
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {**found, "memory_bytes": max(each.ru_maxrss for each in used) * 1024}


def _processor_s() -> float:
    """Returns the processor's seconds of this process and of those that it started and that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def page(rows: list[Row], swept: Row) -> str:
    """Returns the page in Markdown."""
    lines = [
        "# How the choice grows",
        "",
        f"A model of the shape of Llama-3.1-405B ({SEQUENCE_LENGTH:,} tokens, {SAMPLES_PER_RANK} samples per rank and "
        f"step) on `{HARDWARE}`, with fewer or",
        "all of its 126 layers, with the engine deepspeed. Written by",
        "`.venv/bin/python benchmarks/solve_growth.py --out docs/solve_growth.md --plot docs/solve_growth.png`.",
        "",
        "- *combinations*: strategies × micro-batches × recomputation, all of them in the cost table.",
        "- *table*: processor seconds to fill it; *choice*: to choose from it with proof; *beside*: to play the near-",
        "  best through as timelines and set the published systems beside the choice, or to find what would make one",
        "  fit; *front*: to find all *points* of the Pareto front of step time against memory.",
        "- *memory*: the most that the process held, Python and its libraries included. The trace is read from a file;",
        f"  `shardplan trace` took {_from_to(row['trace_s'] for row in rows)} s for it, start of torch included.",
        "",
        "| layers | ranks | combinations | table, s | choice, s | | beside, s | points | front, s | memory, MiB |",
        "|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    cores = len(os.sched_getaffinity(0))
    lines += [
        "",
        f"A sweep of all {LAYERS[-1]} layers over {len(SWEPT)} sizes, {SWEPT[0]} to {SWEPT[-1]:,} ranks, with a global",
        f"batch of {SWEPT[-1]:,}, sizes planned on all cores at once; where nothing fits, what would help is part of",
        f"the answer. The largest of its processes held {swept['memory_bytes'] / 2**20:,.0f} MiB.",
        "",
        "| engine | plans | seconds | of processors |",
        "|---|---:|---:|---:|",
        *(
            f"| {engine} | {swept[engine]['plans']} | {swept[engine]['wall_s']:.1f} | "
            f"{swept[engine]['processor_s']:.1f} |"
            for engine in ENGINES_SWEPT
        ),
        "",
        "![Seconds of table and choice against ranks](solve_growth.png)",
        "",
        f"Python {platform.python_version()}, {cores} cores, one thread each, on a machine that others used too.",
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row["layers"]),
        f"{row['ranks']:,}",
        f"{row['combinations']:,}",
        f"{row['table_s']:.2f}",
        f"{row['solve_s']:.3f}",
        row["status"],
        f"{row['beside_s']:.2f}",
        str(row["points"]),
        f"{row['front_s']:.2f}",
        f"{row['memory_bytes'] / 2**20:,.0f}",
    )


def _from_to(seconds: Iterable[float]) -> str:
    known = list(seconds)
    return f"{min(known):.0f} to {max(known):.0f}"


def plot(rows: list[Row], out: Path) -> None:
    """Draws the seconds of table and choice against ranks, a line for each number of layers."""
    import matplotlib.pyplot as plt  # type: ignore[import-not-found, unused-ignore]

    figure, axes = plt.subplots(layout="constrained")
    for num_layers in reversed(LAYERS):
        own = [row for row in rows if row["layers"] == num_layers]
        seconds = [row["table_s"] + row["solve_s"] for row in own]
        axes.loglog([row["ranks"] for row in own], seconds, marker="o", label=f"{num_layers} layers")
    axes.set(xlabel="ranks", ylabel="seconds of table and choice", ylim=(0.05, 5))
    axes.set_xticks(RANKS, [f"{number:,}" for number in RANKS])
    axes.set_yticks(seconds_shown := (0.05, 0.1, 0.2, 0.5, 1, 2, 5), [f"{number:g}" for number in seconds_shown])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", ncols=2)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
