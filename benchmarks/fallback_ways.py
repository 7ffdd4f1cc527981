"""Compares the fallbacks of the trace with the exact way, over small Hugging Face models of every task.

    python benchmarks/fallback_ways.py [CLASS ...]

prints, for each class and way, FLOPs, saved bytes and peak over those of the exact way, and the extremes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))

from hf_configs import CONFIGS
from test_hf_model import SMALL

from costmodels.workload import Amount
from planner.errors import ShardplanError
from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace
from planner.verify.walk import walk
from runtime.load_model import known_sequence_length

NUM_SAMPLES = 4
LENGTH = 32


def figures(graph: ModelGraph) -> tuple[int, int, int]:
    """Returns FLOPs, saved bytes and peak bytes of a step of NUM_SAMPLES samples."""
    flop = sum((segment.flop for segment in graph.workload.segments), Amount()).at(NUM_SAMPLES)
    walked = walk(graph.workload, NUM_SAMPLES, recompute=False)
    return flop, walked.saved_bytes, walked.peak_bytes


def main(names: list[str]) -> None:
    """Prints the table."""
    ratios: dict[str, list[tuple[float, ...]]] = {"make_fx": [], "static": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / f"{name}.json"
            model_type, fields = CONFIGS[name]
            path.write_text(json.dumps({"model_type": model_type, "architectures": [name], **fields}))
            arguments = {"image_size": str(SMALL[name])} if name in SMALL else {}
            source = ModelSource(spec=str(path), kind="hf_config", arguments=arguments)
            length = LENGTH if known_sequence_length(str(path), "hf_config", arguments, None) else None
            exact = figures(trace(source, precision="fp32", device="cpu", sequence_length=length, way="fake"))
            for way, found in ratios.items():
                try:
                    graph = trace(source, precision="fp32", device="cpu", sequence_length=length, way=way)  # type: ignore[arg-type]
                except ShardplanError as error:
                    print(f"{name:45} {way:8} {error}", flush=True)
                    continue
                found.append(tuple(other / one for one, other in zip(exact, figures(graph), strict=True)))
                print(f"{name:45} {way:8} " + "  ".join(f"{ratio:6.3f}" for ratio in found[-1]), flush=True)
    for way, found in ratios.items():
        columns = list(zip(*found, strict=True))
        for label, column in zip(("FLOPs", "saved", "peak"), columns, strict=True):
            middle = sorted(column)[len(column) // 2]
            print(f"{way:8} {label:6} of {len(column)}: {min(column):.3f} to {max(column):.3f}, median {middle:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(CONFIGS))
