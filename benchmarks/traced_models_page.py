"""The page of the zoo's measures: what was promised and what holds, a table of all models, the misses with reasons."""

from __future__ import annotations

import importlib.metadata
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measured import FLOP, figure, holds, is_as_promised, is_equal, is_exact, is_near, loss
from tests.zoo.misses import MISSES
from tests.zoo.registry import entries, held_out

MODES = ("fp32", "fp32 recomputed", "autocast", "autocast recomputed")
PACKAGES = ("torch", "transformers", "diffusers", "peft", "timm")

Modes = dict[str, Any]


def page(known: dict[str, Modes]) -> str:
    """Returns the page in Markdown, of all entries that were measured, in the zoo's order."""
    names = [name for name in entries() if name in known]
    return "\n".join(
        [
            _HEAD.format(counts=_counts(names), versions=_versions()),
            *_totals(known, names),
            *_table(known, names),
            *_misses(known, names),
        ]
    )


_HEAD = """\
# Models read, and how exactly

Each model was traced without memory, and one training step of it was run for real on a CPU: seeded weights, forward,
loss, backward, a micro-batch of 2. The table has the traced figure over the real one. `.venv/bin/python
benchmarks/traced_and_real.py --out docs/traced_models.md --results FILE` measures and writes this page;
`shardplan trace --verify MODEL` does it for a model of yours.

- *saved* and *peak* are bytes at the end of forward and at most, without parameters, buffers and inputs, and with the
  gradients of parameters as autograd leaves them. The traced ones are what the cost models read: blocks, amounts for
  any micro-batch, recomputation per block. The real ones count every tensor alive beneath torch's dispatcher.
- *allocator*: the same traced figures over what the CPU's allocator handed out, where operators' scratch memory counts.
- *FLOPs*: of forward, and of backward with recomputation, by the same formulas on the real operands.
- *loss*: the emitted graph, run with the real weights, gives the model's loss.
- *s*: seconds of the trace, on two cores that others used at the same time.
- *recomputed*: every block that can be is run again in backward. *autocast*: fp32 weights under `torch.autocast`, bf16.

{counts}. {versions}. CPU, one thread, without oneDNN (its scratch memory is visible to the allocator alone).
"""

_TOLERANCES = """
Tolerance of bytes: 0.1 % in fp32, 2 % under autocast. Held out: models that nothing was tuned on. What the allocator
counts beyond is scratch memory of convolutions and recurrent layers, and 5,056 bytes of random state for each
recomputed block, which is much where a block is this small.
"""

_OTHER_FAMILIES = ("diffusion", "adapter", "timm", "plain torch")


def _counts(names: list[str]) -> str:
    families = Counter(entries()[name].family for name in names)
    others = [f"{families[family]} of {family}" for family in _OTHER_FAMILIES]
    num_transformers = sum(families.values()) - sum(families[family] for family in _OTHER_FAMILIES)
    return f"{len(names)} models: {num_transformers} of transformers, {', '.join(others)}"


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def _totals(known: dict[str, Modes], names: list[str]) -> Iterator[str]:
    yield "## What holds\n"
    yield "| | " + " | ".join(MODES) + " |"
    yield "|---|" + "---:|" * len(MODES)
    rows: list[tuple[str, Callable[[Any], bool]]] = [
        ("parameters equal", lambda found: is_equal(found, "num_params")),
        ("FLOPs equal", lambda found: all(is_equal(found, name) for name in FLOP)),
        ("saved bytes equal", lambda found: is_equal(found, "saved_bytes")),
        ("saved bytes within tolerance", lambda found: holds(found, "saved_bytes")),
        ("peak bytes equal", lambda found: is_equal(found, "peak_bytes")),
        ("peak bytes within tolerance", lambda found: holds(found, "peak_bytes")),
        ("loss replayed", lambda found: loss(found) == "ok"),
        ("all of it", is_exact),
        ("by the allocator: saved bytes within 0.1 %", lambda found: is_near(found, "allocator_saved_bytes", 1e-3)),
        ("by the allocator: peak bytes within 1 %", lambda found: is_near(found, "allocator_peak_bytes", 1e-2)),
    ]
    for title, chosen in (("all models", names), ("held out", [name for name in names if name in held_out()])):
        yield (
            f"| **{title}**: traced, of those that run | "
            + " | ".join(_share(known, chosen, mode) for mode in MODES)
            + " |"
        )
        for text, test in rows:
            cells = [_count(known, chosen, mode, test) for mode in MODES]
            yield f"| {text} | " + " | ".join(cells) + " |"
    yield _TOLERANCES


def _share(known: dict[str, Modes], names: list[str], mode: str) -> str:
    running = [name for name in names if not known[name][mode].get("error", "").startswith("RunError")]
    traced = sum("error" not in known[name][mode] for name in running)
    return f"{traced} of {len(running)} = {traced / max(len(running), 1):.1%}"


def _count(known: dict[str, Modes], names: list[str], mode: str, test: Callable[[Any], bool]) -> str:
    traced = [known[name][mode] for name in names if "error" not in known[name][mode]]
    number = sum(test(found) for found in traced)
    return f"{number} = {number / max(len(traced), 1):.1%}"


def _table(known: dict[str, Modes], names: list[str]) -> Iterator[str]:
    yield "## All models\n"
    columns = ["model", "captured", "s", "parameters", "loss", "FLOPs", "saved", "peak", "allocator: saved", "peak"]
    columns += [
        "recomputed: FLOPs",
        "saved",
        "peak",
        "autocast: FLOPs",
        "saved",
        "peak",
        "and recomputed: saved",
        "peak",
    ]
    yield "| " + " | ".join(columns) + " |"
    yield "|---|---|" + "---:|" * (len(columns) - 2)
    family = ""
    for name in names:
        if entries()[name].family != family:
            family = entries()[name].family
            yield f"| **{family}** |" + " |" * (len(columns) - 1)
        yield "| " + " | ".join(_row(name, known[name])) + " |"
    yield ""


def _row(name: str, modes: Modes) -> list[str]:
    mark = " *" if name in held_out() else ""
    first = modes["fp32"]
    cells = [name + mark]
    if "error" in first:
        cells += ["not traced", *[""] * 8]
    else:
        cells += [
            first["traced_by"],
            f"{first['trace_s']:.1f}",
            f"{figure(first, 'num_params')['traced']:,}",
            loss(first),
        ]
        cells += [_flop(first), *_bytes(first), *_bytes(first, "allocator_")]
    again, mixed, both = (modes[mode] for mode in MODES[1:])
    cells += ["", "", ""] if "error" in again else [_flop(again), *_bytes(again)]
    cells += ["", "", ""] if "error" in mixed else [_flop(mixed), *_bytes(mixed)]
    return cells + (["", ""] if "error" in both else _bytes(both))


def _flop(found: Any) -> str:
    return _ratio(*(sum(figure(found, name)[side] for name in FLOP) for side in ("traced", "real")))


def _bytes(found: Any, prefix: str = "") -> list[str]:
    pair = [figure(found, f"{prefix}{name}_bytes") for name in ("saved", "peak")]
    return [_ratio(each["traced"], each["real"]) for each in pair]


def _ratio(traced: int, real: int) -> str:
    if traced == real:
        return "exact"
    ratio = traced / real if real else math.inf
    return f"{ratio:.5f}" if abs(ratio - 1) < 1e-3 else f"**{ratio:.3f}**"


def _misses(known: dict[str, Modes], names: list[str]) -> Iterator[str]:
    yield "## What misses, and why\n"
    for name in names:
        off = [mode for mode in MODES if "error" in known[name][mode] or not is_as_promised(known[name][mode])]
        if off:
            yield f"- **{name}** ({', '.join(off)}): {MISSES.get(name) or _error(known[name], off) or 'not explained'}"
    yield ""


def _error(modes: Modes, off: list[str]) -> str:
    text = next((modes[mode]["error"] for mode in off if "error" in modes[mode]), "")
    first = str(text.partition("\n")[0])
    does_not_run = "".join(first.partition("the model itself")[1:])
    return (does_not_run or first)[:300]
