"""Writes what papers measured and decided beside what the planner predicts and decides: docs/published.md.

    .venv/bin/python benchmarks/published.py --out docs/published.md

The models are traced here; nothing is measured. `tests/published/volumes.py` and `decisions_*.py` say what was changed
of the shipped machines and what was fitted, the tests beside them hold the figures, and published_text.md has the
page's text, with a place for each table and figure.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "published"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))

import decisions_amsp as amsp
import decisions_frontier as frontier
import decisions_internevo as internevo
import decisions_zeropp as zeropp
import test_amsp
import volumes
from decisions import Anchor

TEXT = Path(__file__).with_name("published_text.md")


def main() -> None:
    """Writes the page, or prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the page to write; default: standard output")
    out = parser.parse_args().out
    warnings.simplefilter("ignore")
    found = tables()
    text = TEXT.read_text(encoding="utf-8").format(
        summary=summary(found),
        day=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        states=states_table(found["zero_table1"]),
        stage_volumes=table_of(found["zero_volume"], "models received by a rank"),
        tutorial_memory=table_of(found["zeropp_tutorial, memory"], "MiB"),
        crossing_volumes=table_of(found["zeropp_volume"], "models sent to a node"),
        **of_amsp(),
        **of_internevo(),
        **of_zeropp(),
        **of_frontier(),
    )
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


FITTED = {
    "zeropp_tutorial": "speed of products, efficiency of a port",
    "zeropp_throughput": "the same",
    "zeropp_throughput, ratio": "the same",
    "amsp_table5": "speed of products, a constant",
    "internevo_zero1": "speed of products at 8 GPUs",
    "internevo_zero1, ratio": "the same",
    "frontier": "efficiency of the network, M",
}
"""What was fitted to some of a table's own figures; of the others nothing was."""


def tables() -> dict[str, tuple[Anchor, ...]]:
    """Returns the figures of each table of `published.json` that has figures; AMSP's table IV has decisions alone."""
    return {
        "zero_table1": volumes.states(),
        "zero_volume": volumes.stage_volumes(),
        "zeropp_volume": volumes.crossing_volumes(),
        "zeropp_tutorial": zeropp.phases(),
        "zeropp_tutorial, memory": volumes.tutorial_memory(),
        "zeropp_throughput": tuple(each for each in zeropp.throughputs() if each.unit == "TFLOPS"),
        "zeropp_throughput, ratio": zeropp.ratios(),
        "amsp_table5": amsp_rates(),
        "internevo_zero1": internevo.curves(),
        "internevo_zero1, ratio": internevo.crossover(),
        "frontier": frontier.ratios(),
    }


def summary(found: Mapping[str, Sequence[Anchor]]) -> str:
    """Returns a line for each table: its figures and their errors; of a published 0, the difference."""
    lines = ["| table | figures | median error | 90 % | worst | fitted |", "|---|---:|---:|---:|---:|---|"]
    for name, anchors in found.items():
        errors = sorted(abs(each.error) if each.published else abs(each.predicted) for each in anchors)
        ninth = errors[math.ceil(0.9 * len(errors)) - 1]
        cells = (statistics.median(errors), ninth, errors[-1])
        figures = " | ".join(_percent(each) for each in cells)
        lines.append(f"| {name} | {len(errors)} | {figures} | {FITTED.get(name, '')} |")
    return "\n".join(lines)


def states_table(anchors: Sequence[Anchor]) -> str:
    """Returns ZeRO's table, published and predicted in each cell."""
    by_row: dict[str, list[Anchor]] = {}
    for each in anchors:
        by_row.setdefault(each.figure.rpartition(", ")[0], []).append(each)
    lines = ["| model, ranks | os | os+g | os+g+p |", "|---|---:|---:|---:|"]
    for row, of_row in by_row.items():
        lines.append(f"| {row} | " + " | ".join(f"{each.published:g} / {each.predicted:.5g}" for each in of_row) + " |")
    return "\n".join(lines)


def amsp_rates() -> tuple[Anchor, ...]:
    """Returns AMSP's table V."""
    table = test_amsp.published()["amsp_table5"]
    return tuple(
        Anchor("", f"{model}, {m}", "", test_amsp.tokens_per_s(model, m), float(table[model][m]))
        for model, m in test_amsp.ROWS
    )


def of_amsp() -> dict[str, str]:
    """Returns what the text has places for."""
    rows = [amsp_row(model, num_nodes) for model in amsp.MODELS for num_nodes in amsp.NODES]
    worst = max(amsp.choice(model, num_nodes).slower for model in amsp.MODELS for num_nodes in amsp.NODES)
    head = (
        "| model | ranks | M | AMSP's | GiB | ours | slower | slowest | in a timeline | ZeRO-3 there "
        "| ours where nothing is hidden | slower | ZeRO-3 |\n"
        "|---|---:|---:|---|---:|---|---:|---:|---:|---:|---|---:|---:|\n"
    )
    return {
        "amsp": head + "\n".join(rows),
        "amsp_worst": _percent(worst),
        "rates": table_of(amsp_rates(), "row"),
        "fixed_s": f"{test_amsp.FIXED_S}",
    }


def amsp_row(model: str, num_nodes: int) -> str:
    """Returns one model on one number of nodes."""
    found, bare = amsp.choice(model, num_nodes), amsp.choice(model, num_nodes, 0.0)
    ours_s, theirs_s, zero_3_s = (
        amsp.timeline_s(model, num_nodes, each[0]) for each in (found.ours, found.theirs, found.zero_3)
    )
    cells = (
        model,
        f"{found.num_ranks:,}",
        f"{found.num_micro_batches}",
        f"{found.theirs[0]}",
        f"{found.theirs[2] / 2**30:.1f}",
        f"{found.ours[0]}",
        _percent(found.slower),
        _percent(found.worst_slower),
        _percent(theirs_s / ours_s - 1),
        _percent(zero_3_s / ours_s - 1),
        f"{bare.ours[0]}",
        _percent(bare.slower),
        _percent(bare.zero_3[1] / bare.ours[1] - 1),
    )
    return "| " + " | ".join(cells) + " |"


def of_internevo() -> dict[str, str]:
    """Returns what the text has places for."""
    curves = internevo.curves()
    over, inside = (internevo.tokens_per_s(512, degree, broadcasts=False) for degree in (512, internevo.NODE))
    return {
        "internevo": table_of(curves, "tokens per GPU and second"),
        "internevo_range": _range(each for each in curves if each.figure != "(1,1,N) at 1024 GPUs"),
        "internevo_tflops": f"{internevo.fitted_flop_per_s() / 1e12:.0f}",
        "crossover": table_of(internevo.crossover(), "throughput"),
        "gathered": f"{over / inside:.3f}",
    }


def of_zeropp() -> dict[str, str]:
    """Returns what the text has places for."""
    phases, ratios = zeropp.phases(), zeropp.ratios()
    return {
        "zeropp": table_of((*phases, *ratios), "figure"),
        "zeropp_rates": table_of((each for each in zeropp.throughputs() if each.unit == "TFLOPS"), "TFLOPS"),
        "zeropp_hidden": table_of((*zeropp.phases(overlap=1.0), *zeropp.ratios(overlap=1.0)), "figure, all overlap"),
        "zeropp_range": _range(ratios),
        "phases_range": _range(phases),
        "zeropp_tflops": f"{zeropp.FLOP_PER_S / 1e12:.0f}",
        "port": f"{zeropp.PORT_EFFICIENCY * 100:.0f} %",
    }


def of_frontier() -> dict[str, str]:
    """Returns what the text has places for."""
    shown = [each for m in (1, 4, 16, 64) for each in frontier.ratios(num_micro_batches=m)]
    return {
        "frontier": table_of(shown, "throughput"),
        "frontier_range": _range(frontier.ratios()[:2]),
        "frontier_shipped": ", ".join(f"{each.figure} {each.predicted:.2f}" for each in frontier.ratios(0.75)),
        "network": f"{frontier.NETWORK_EFFICIENCY * 100:.0f} %",
    }


def table_of(anchors: Iterable[Anchor], what: str) -> str:
    """Returns published figures beside predicted ones."""
    rows = [
        f"| {each.run + ': ' if each.run else ''}{each.figure} | {each.published:.4g} | {each.predicted:.4g} "
        f"| {f'{each.error * 100:+.1f} %' if each.published else '–'} |"
        for each in anchors
    ]
    return "\n".join((f"| {what} | published | predicted | error |", "|---|---:|---:|---:|", *rows))


def _range(anchors: Iterable[Anchor]) -> str:
    errors = [each.error * 100 for each in anchors]
    return f"{min(errors):+.0f} to {max(errors):+.0f} %"


def _percent(part: float) -> str:
    return f"{part * 100:.1f} %"


if __name__ == "__main__":
    main()
