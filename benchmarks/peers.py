"""Asks Shardplan and other planners the same questions, side by side in one run, and writes what each answers.

    python benchmarks/peers.py --path CHECKOUT ... --out docs/peers.md

Run it by the Python of a virtual environment of its own, where Shardplan is installed with `.[deepspeed,hf,peers]`; a
planner that is not installed there, nor in a checkout that `--path` names, is listed with its error. docs/peers.md says
what was installed, and how. Each planner answers in a process of its own. It takes about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from peers_question import QUESTIONS, Answer

ROOT = Path(__file__).parents[1]
PEERS = ("shardplan", "torch_sac", "galvatron", "calculon", "autoparallel", "llm_analysis", "deepspeed", "accelerate")
TIME_LIMIT_S = 900
MARK = "answers: "


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of one question to one planner: answers, or an error."""

    peer: str
    question: str
    answers: tuple[Answer, ...]
    error: str = ""


def ask(peer: str, question: str, paths: tuple[str, ...]) -> Asked:
    """Returns what a planner answers, in a process of its own that may fail or take too long."""
    given = os.environ.get("PYTHONPATH")
    searched = os.pathsep.join([str(ROOT), *paths, *([given] if given else [])])
    # A planner that is compiled by others warns and prints as it likes: its answers are the line with the mark.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": searched, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--ask", peer, question]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Asked(peer, question, (), f"no answer within {TIME_LIMIT_S} s")
    marked = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if not marked:
        said = [line for line in ended.stderr.splitlines() if line.strip()] or [f"exit code {ended.returncode}"]
        return Asked(peer, question, (), said[-1][:200])
    return Asked(peer, question, tuple(Answer(**each) for each in json.loads(marked[0].removeprefix(MARK))))


def answer(peer: str, question: str) -> None:
    """Prints what a planner answers, marked, for the process that asked."""
    logging.disable(logging.WARNING)
    found = importlib.import_module(f"peers_{peer}").answers(QUESTIONS[question])
    print(MARK + json.dumps([asdict(each) for each in found]))


def main() -> None:
    """Asks every planner every question that it can be asked, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the page to write; default: standard output")
    parser.add_argument(
        "--path", action="append", default=[], help="a checkout of a planner, as often as there are some"
    )
    parser.add_argument("--only", action="append", choices=PEERS, help="ask these alone")
    parser.add_argument("--question", action="append", choices=tuple(QUESTIONS), help="these questions alone")
    parser.add_argument("--no-runs", action="store_true", help="leave out what trains models here")
    parser.add_argument("--ask", nargs=2, metavar=("PEER", "QUESTION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        answer(*options.ask)
        return
    from peers_page import page

    asked = []
    for question in options.question or tuple(QUESTIONS):
        for peer in PEERS:
            if peer in (options.only or PEERS) and question in importlib.import_module(f"peers_{peer}").ASKED:
                asked.append(ask(peer, question, tuple(options.path)))
                print(asked[-1], file=sys.stderr, flush=True)
    peaks, measured = (), ()
    if not options.no_runs:
        sys.path[:0] = [str(ROOT), *options.path]
        from peers_measured import measured_rows
        from peers_peaks import peaks_of

        peaks, measured = peaks_of(), measured_rows()
        print(*peaks, *measured, sep="\n", file=sys.stderr)
    written = page(tuple(asked), peaks, measured)
    if options.out:
        options.out.write_text(written, encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
