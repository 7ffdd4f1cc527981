"""Trains a GPT of 10 M parameters on this repository's own text, exactly and with quantized messages.

    .venv/bin/python benchmarks/quantized_training.py --out docs/quantized_training.md

Four ranks as two nodes of two share everything (p = g = o = 4, parameters gathered over the node for backward) in fp32,
so that nothing but the quantization differs: from the same initial weights, on the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from examples.gpt import GPT  # noqa: E402
from runtime.fsdp.optimizer import ShardedOptimizer  # noqa: E402
from runtime.fsdp.shard import shard  # noqa: E402
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan  # noqa: E402
from runtime.record_traffic import RecordTraffic  # noqa: E402

NUM_RANKS, RANKS_PER_NODE = 4, 2
WIDTH, DEPTH, HEADS, SEQUENCE_LENGTH, SAMPLES = 320, 8, 8, 64, 2
"""SAMPLES per rank and step."""
WARM_UP, LEARNING_RATE = 30, 1e-3
LAST = 20
"""Steps at the end whose mean loss is compared: that of one batch tells little."""
HELD_OUT = 8
"""Batches that are not trained on."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is quantized."""

    name: str
    weights: bool = False
    gradients: bool = False
    error_feedback: bool = False


CASES = (
    Case("exact"),
    Case("qwZ + qgZ + error feedback", weights=True, gradients=True, error_feedback=True),
    Case("qwZ + qgZ, no feedback", weights=True, gradients=True),
    Case("qwZ", weights=True),
    Case("qgZ + error feedback", gradients=True, error_feedback=True),
)


def main() -> None:
    """Runs all cases one after the other, and writes the page after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="the page to write; default: standard output")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--cases", type=int, default=len(CASES), help="so many of them")
    asked = parser.parse_args()
    text = own_text()
    done: list[dict[str, Any]] = []
    for case in CASES[: asked.cases]:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_rank, args=(case, text, asked.steps, folder), nprocs=NUM_RANKS)  # type: ignore[no-untyped-call]
            done.append(torch.load(Path(folder) / "result.pt", weights_only=True))
        written = page(done, text, asked.steps)
        print(written) if asked.out is None else asked.out.write_text(written, encoding="utf-8")


def own_text() -> bytes:
    """Returns the pages and the sources of this repository, one after the other."""
    folders = ("docs", "costmodels", "planner", "runtime", "hw_profiles", "examples")
    files = [ROOT / "README.md", ROOT / "cli.py"]
    files += [each for folder in folders for each in sorted((ROOT / folder).rglob("*.*"))]
    # Not what this command writes.
    read = [each for each in files if each.suffix in (".md", ".py") and each.name != "quantized_training.md"]
    return b"\n".join(each.read_bytes() for each in read)


def _rank(rank: int, case: Case, text: bytes, num_steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=NUM_RANKS)
    result = train(case, text, num_steps)
    if rank == 0:
        torch.save(result, Path(folder) / "result.pt")
    dist.barrier()
    dist.destroy_process_group()


def train(case: Case, text: bytes, num_steps: int) -> dict[str, Any]:
    """Trains on this rank, and returns the mean losses of all."""
    torch.manual_seed(0)
    model = GPT(256, SEQUENCE_LENGTH, WIDTH, DEPTH, HEADS, tied=False)
    num_params = sum(each.numel() for each in model.parameters())
    names = ("tokens", "positions", *(f"layers.{number}" for number in range(DEPTH)), "norm", "head")
    strategy = BlockStrategy(names, NUM_RANKS, RANKS_PER_NODE, NUM_RANKS, NUM_RANKS, case.weights, case.gradients)
    plan = ShardingPlan(
        (strategy,), NUM_RANKS, RANKS_PER_NODE, 1, "fp32", (RANKS_PER_NODE, NUM_RANKS // RANKS_PER_NODE)
    )
    sharded = shard(model, replace(plan, error_feedback=case.error_feedback))
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=LEARNING_RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    held_out = len(data) * 9 // 10
    losses, traffic = [], ()
    began_s = time.perf_counter()
    for step in range(num_steps):
        batch = batch_of(data[:held_out], step)
        if step == num_steps - 1:
            with RecordTraffic() as recorder:
                loss = _step(model, optimizer, batch)
            traffic = tuple(
                (each.operation, each.degree_from, each.degree_to, each.bytes) for each in recorder.totals()
            )
        else:
            loss = _step(model, optimizer, batch)
        schedule.step()
        losses.append(_mean(loss))
        if dist.get_rank() == 0 and step % 10 == 9:
            print(
                f"{case.name}: step {step + 1}, loss {losses[-1]:.4f}, {time.perf_counter() - began_s:.0f} s",
                file=sys.stderr,
            )
    with torch.no_grad():
        unseen = [_mean(model(**batch_of(data[held_out:], step))) for step in range(HELD_OUT)]
    return {
        "name": case.name,
        "losses": losses,
        "held_out": sum(unseen) / len(unseen),
        "traffic": traffic,
        "num_params": num_params,
        "seconds": time.perf_counter() - began_s,
    }


def _step(model: Any, optimizer: ShardedOptimizer, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = model(**batch)
    optimizer.backward(loss)
    optimizer.step()
    return loss.detach()


def batch_of(data: torch.Tensor, step: int) -> dict[str, torch.Tensor]:
    """Returns this rank's samples of a step."""
    generator = torch.Generator().manual_seed(NUM_RANKS * step + dist.get_rank())
    starts = torch.randint(0, len(data) - SEQUENCE_LENGTH - 1, (SAMPLES,), generator=generator)
    rows = torch.stack([data[start : start + SEQUENCE_LENGTH + 1] for start in starts.tolist()])
    return {"tokens": rows[:, :-1], "labels": rows[:, 1:]}


def _mean(loss: torch.Tensor) -> float:
    total = loss.clone()
    dist.all_reduce(total)
    return total.item() / NUM_RANKS


def page(done: Sequence[dict[str, Any]], text: bytes, num_steps: int) -> str:
    """Returns the table of what has run so far."""
    exact = done[0]
    last = [sum(each["losses"][-LAST:]) / LAST for each in done]
    steps = sorted({min(num_steps, step) for step in (50, 100, 150, 200, 250, 300)})
    head = ["", *(f"step {step}" for step in steps), f"last {LAST}", "to exact", "held out", "to exact"]
    rows = [
        [
            each["name"],
            *(f"{sum(each['losses'][step - LAST : step]) / LAST:.4f}" for step in steps),
            f"{mean:.4f}",
            f"{mean / last[0] - 1:+.2%}",
            f"{each['held_out']:.4f}",
            f"{each['held_out'] / exact['held_out'] - 1:+.2%}",
        ]
        for each, mean in zip(done, last, strict=True)
    ]
    operations = sorted({tuple(message[:3]) for each in done for message in each["traffic"]})
    sent = [{tuple(message[:3]): message[3] for message in each["traffic"]} for each in done]
    traffic_head = ["MB of a step", *(f"{name} {low} to {high}" for name, low, high in operations)]
    traffic = [
        [each["name"], *(f"{bytes_of[key] / 1e6:.2f}" if key in bytes_of else "" for key in operations)]
        for each, bytes_of in zip(done, sent, strict=True)
    ]
    setting = (
        f"A GPT of {exact['num_params']:,} parameters learns this repository's own {len(text):,} bytes of text "
        f"(SHA-256 {hashlib.sha256(text).hexdigest()[:16]}) in {num_steps} steps of {NUM_RANKS * SAMPLES} sequences of "
        f"{SEQUENCE_LENGTH} bytes: AdamW in fp32, on {NUM_RANKS} gloo ranks as {NUM_RANKS // RANKS_PER_NODE} nodes of "
        f"{RANKS_PER_NODE}, p = g = o = {NUM_RANKS} and s = {RANKS_PER_NODE}. The weights to begin with and the data "
        "are the same in all runs. Written by `.venv/bin/python benchmarks/quantized_training.py --out "
        f"docs/quantized_training.md` on {date.today().isoformat()}, with torch {torch.__version__} on "
        f"{platform.machine()}."
    )
    return f"""# Training with quantized messages

{textwrap.fill(setting, 120, break_long_words=False, break_on_hyphens=False)}

Losses are means over the {LAST} steps before; "held out" is of {HELD_OUT} batches that were not trained on.

{_table(head, rows)}

What a rank took part in, of one step (fp32: exact numbers have 4 bytes, so int8 with scales is 0.254 of them and int4
0.129; in bf16 0.508 and 0.258):

{_table(traffic_head, traffic)}
"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
