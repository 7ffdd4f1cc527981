"""Writes docs/formulas.md from the expressions that the planner computes with.

.venv/bin/python docs/write_formulas.py
"""

from __future__ import annotations

import ast
import inspect
import itertools
from pathlib import Path

from costmodels import symbols
from costmodels.algorithms import FORMULAS
from costmodels.compute import SEGMENT_NS, UPDATE_NS
from costmodels.lower import Formula, written
from costmodels.offload import HOST_UPDATE_NS, MOVED_NS
from costmodels.states import GRADIENT_BYTES, OPTIMIZER_BYTES, PARAMETER_BYTES, SECONDARY_BYTES

PAGE = Path(__file__).with_name("formulas.md")

HEAD = """# Formulas

Written by `docs/write_formulas.py` from the expressions that the planner lowers and computes with; `shardplan explain`
prints them with a plan's numbers. What an engine does beyond them (padding, buckets, prefetching, what it keeps by its
own rules) is run on numbers in `costmodels/deepspeed/`, and is held to recordings (`tests/integration`).
"""

COLLECTIVES = """## Collectives

Where no curve was measured, a collective takes what its algorithm takes: in each phase, at the slowest level of the
machine, the bytes that enter one unit of that level over what the unit's links carry, and the start-ups of its steps at
all levels. `port` is what must enter a unit whatever the algorithm; a profile says which algorithms its machine runs,
and the fastest counts. B: bytes of the full message; u: units of the level that a group spans; q: groups that share one
unit's links; r: ranks of a group in one unit; n: ranks of a group; k: stages of a binary tree over the units.
`hierarchical` takes the levels in turn, all others at once.
"""

STATES = (PARAMETER_BYTES, SECONDARY_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES)
COMPUTE = (SEGMENT_NS, UPDATE_NS)
OFFLOAD = (MOVED_NS, HOST_UPDATE_NS)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Returns the page: tables of formulas, each with its letters."""
    return "\n".join(
        [
            HEAD,
            "## Model states of a block\n",
            *_table(STATES),
            *_letters(STATES),
            "## Compute of a segment, and the update\n",
            *_table(COMPUTE),
            *_letters(COMPUTE),
            "## An update of states in host memory\n",
            *_table(OFFLOAD),
            *_letters(OFFLOAD),
            COLLECTIVES,
            *_table(tuple(itertools.chain.from_iterable(FORMULAS.values()))),
        ]
    )


def _table(formulas: tuple[Formula, ...]) -> list[str]:
    rows = [f"| {each.name} | `{written(each.expression)}` | {each.unit} | {each.source} |" for each in formulas]
    return ["| what | formula | unit | source |", "|---|---|---|---|", *rows, ""]


def _letters(formulas: tuple[Formula, ...]) -> list[str]:
    used = {str(symbol) for formula in formulas for symbol in formula.arguments}
    return [f"- {text}" for letter, text in _meanings().items() if letter in used] + [""]


def _meanings() -> dict[str, str]:
    """Returns what each letter of `costmodels/symbols.py` stands for, from the text beneath it."""
    found: dict[str, str] = {}
    for statement, text in itertools.pairwise(ast.parse(inspect.getsource(symbols)).body):
        if isinstance(text, ast.Expr) and isinstance(statement, ast.Assign):
            target = ast.unparse(statement.targets[0])
            found[str(getattr(symbols, target))] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


if __name__ == "__main__":
    main()
