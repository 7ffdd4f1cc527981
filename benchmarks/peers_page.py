"""The page of what planners answered, in Markdown."""

from __future__ import annotations

import datetime
import importlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from peers_question import QUESTIONS, Answer, Question

PACKAGES = ("torch", "deepspeed", "transformers", "accelerate", "ortools", "pulp", "pwlf", "triton")

NOT_RUN = (
    ("alpa 0.2.3", "installation: `No matching distribution found for ray==2.1.0`"),
    ("AIConfigurator 0.12.0, llm-mem-planner 0.2.2", "plan serving, not training"),
    (
        "ColossalAI 0.5.0, `auto_parallel`",
        "for an older torch; on a fake group: `TypeError: ActivationCheckpointCodeGen._gen_python_code() got an "
        "unexpected keyword argument 'include_stride'`",
    ),
    ("FlexFlow 25.2.1 (Unity)", "comes as C++ and CUDA sources; not built here"),
    ("hetu-galvatron 2.4.0 of the registry", "its search and the Llama profile that it ships differ: `KeyError: 2048`"),
    ("nanotron 0.4, torchtitan 0.3.0", "no search; torchtitan's wheel has no estimation script"),
    ("Slapo 0.0.3", "import: `TypeError: NoneType takes no arguments` (a transformers class that is gone)"),
    ("veScale 0.0.1", "import: `No module named 'grpc'`; no search over memory or time"),
    ("torch 2.13.0: AutoFSDP, `fsdp_ilp`", "not in the wheel; of `torch.distributed._tools`, `sac_ilp` is"),
)
"""What was looked at and gave nothing to compare, with the reason, on Python 3.11 without a GPU."""


def page(asked: tuple[Any, ...], peaks: tuple[Any, ...], measured: tuple[Any, ...]) -> str:
    """Returns the page.

    Args:
        asked: `peers.Asked`, those of one question after another.
        peaks: `peers_peaks.Peak`; none where nothing was run.
        measured: `peers_measured.Measured`; none where nothing was run.
    """
    lines = [HEAD.format(date=datetime.date.today().isoformat(), versions=_versions(), cores=_cores())]
    for key, question in QUESTIONS.items():
        mine = [each for each in asked if each.question == key]
        if mine:
            lines += _section(question, mine)
    if peaks:
        lines += _peaks(peaks)
    if measured:
        lines += _measured(measured)
    lines += ["## Looked at, and not run", "", "| planner | why |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in NOT_RUN]
    return "\n".join(lines) + "\n"


def _section(question: Question, asked: list[Any]) -> list[str]:
    nodes = "node" if question.num_nodes == 1 else "nodes"
    lines = [
        f"## {question.name} on {question.num_nodes} {nodes} of `{question.hardware}`",
        "",
        f"{question.num_ranks} ranks, {question.global_batch_size} sequences of {question.sequence_length:,} tokens "
        "per step, bf16, AdamW.",
        "",
        "| planner | chosen | GiB per rank | step, s | search, s | points | |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for each in asked:
        title = importlib.import_module(f"peers_{each.peer}").TITLE
        if each.error:
            lines.append(f"| {title} | – | | | | | failed: `{_cell(each.error)}` |")
        lines += [_row(title, answer) for answer in each.answers]
    return [*lines, ""]


def _row(title: str, answer: Answer) -> str:
    cells = (
        title,
        answer.chosen,
        "" if answer.memory_bytes is None else f"{answer.memory_bytes / 2**30:,.1f}",
        "" if answer.step_s is None else f"{answer.step_s:.3g}" if answer.step_s < 1 else f"{answer.step_s:,.2f}",
        "" if answer.seconds is None else f"{answer.seconds:.3f}" if answer.seconds < 10 else f"{answer.seconds:.0f}",
        "" if answer.num_considered is None else f"{answer.num_considered:,}",
        answer.note,
    )
    return "| " + " | ".join(_cell(each) for each in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _peaks(rows: tuple[Any, ...]) -> list[str]:
    from peers_peaks import MICRO_BATCH, SEQUENCE_LENGTH

    lines = [
        "## Told and real: the peak of forward and backward",
        "",
        f"One rank, fp32, micro-batch {MICRO_BATCH}, sequences of {SEQUENCE_LENGTH}: MiB of all tensors alive",
        "at the peak, gradients with them, parameters not. In brackets: told over real. `sac_ilp` is read before it",
        "recomputes anything; its bound adds up parts of a module at moments that need not be the same.",
        "",
        "| model | real step on this CPU | Shardplan's trace | torch `sac_ilp` |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        told = [_told(each, row.real_bytes) for each in (row.shardplan_bytes, row.sac_bytes)]
        lines.append(f"| {row.name} | {row.real_bytes / 2**20:,.1f} | {' | '.join(told)} |")
    return [*lines, ""]


def _measured(rows: tuple[Any, ...]) -> list[str]:
    from peers_measured import MODEL, NUM_RANKS

    lines = [
        "## Told and measured: peak memory of one small model",
        "",
        f"{MODEL}, bf16, micro-batch 2,",
        f"trained by DeepSpeed on {NUM_RANKS} gloo ranks of this CPU, whose allocator judges all. In brackets: told",
        "over measured. DeepSpeed's two tell model states: the estimator is compared with what a rank holds at rest;",
        "to the autotuner the activations were given that it would have measured, and it is compared with the peak.",
        "",
        "| stage | peak, MiB | Shardplan | autotuner | at rest, MiB | Shardplan | estimator |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        peak = [f"{row.peak_bytes / 2**20:,.1f}"]
        peak += [_told(each, row.peak_bytes) for each in (row.shardplan_bytes, row.autotuner_bytes)]
        rest = [f"{row.at_rest_bytes / 2**20:,.1f}"]
        rest += [_told(each, row.at_rest_bytes) for each in (row.shardplan_at_rest_bytes, row.estimator_bytes)]
        lines.append(f"| {row.stage} | {' | '.join([*peak, *rest])} |")
    return [*lines, ""]


def _told(told_bytes: int | None, measured_bytes: int) -> str:
    if told_bytes is None:
        return "–"
    return f"{told_bytes / 2**20:,.1f} ({told_bytes / measured_bytes - 1:+.1%})"


def _versions() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    return ", ".join(found)


def _cores() -> str:
    return f"{len(os.sched_getaffinity(0))} cores ({platform.machine()}), Python {platform.python_version()}"


def _space() -> str:
    from peers import PEERS

    lines = ["| planner | searches | documentation |", "|---|---|---|"]
    for peer in PEERS:
        module = importlib.import_module(f"peers_{peer}")
        lines.append(f"| {module.TITLE} | {module.SEARCHES} | {module.SOURCE} |")
    return "\n".join(lines)


HEAD = (
    """# Side by side with other planners

Each planner was asked the same questions in one run, each in a process of its own, with the defaults that its
documentation gives. Written on {date} by

    python benchmarks/peers.py --path CHECKOUT ... --out docs/peers.md

on {cores}, one thread each, on a machine that others used too, without a GPU:
{versions}.

The command wants a virtual environment of its own: Shardplan with `.[deepspeed,hf,peers]`, which is enough for torch's
solver; `filecheck` for AutoParallel, `fire` for llm-analysis; `hydra-core`, `six` and `triton` for Galvatron, and its
`csrc/dp_core.cpp`, built with pybind11; and a `--path` for each checkout. A planner that is absent is listed with its
error.

"""
    + _space()
    + """

*search* is the seconds of the search alone; reading or tracing the model comes before it, and is told where it is long.
*GiB per rank* and *step* are what the planner itself predicts: of steps, none was measured here, and they rest on other
speeds of the same GPU (Galvatron's on times that its authors measured, Calculon's and Shardplan's on rooflines with
efficiencies, llm-analysis' on the peak), so that they tell whether planners agree, not who is right. Memory is judged
below. Shardplan's rows that begin with fsdp are of its own engine, on PyTorch's FSDP2.

Others search what Shardplan does not: tensor and pipeline parallelism (Galvatron, Calculon, AutoParallel), and a part
of a block's activations to discard (`sac_ilp`; Shardplan recomputes whole blocks or none). None of them has separate
degrees of parameters, gradients and optimizer states over parts of the ranks, nor what DeepSpeed sends and holds.

"""
)
