"""The comparison with other planners runs, and says of an absent one that it is absent."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TINY = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}


def _page(*options: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--no-runs", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _row(page: str, planner: str) -> list[str]:
    searched = page[page.index("| planner | chosen |") :]
    row = next(line for line in searched.splitlines() if line.startswith(f"| {planner} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_our_own_row_has_a_proved_plan_with_its_memory_and_time() -> None:
    _, chosen, memory_gib, step_s, search_s, points, note = _row(
        _page("--only=shardplan", "--question=gpt2"), "Shardplan"
    )
    assert chosen.startswith("deepspeed: (p,g,o) = ")
    assert 0 < float(memory_gib) < 40
    assert float(step_s) > 0 and float(search_s) >= 0 and int(points) > 1
    assert note.startswith("OPTIMAL")


def test_an_absent_planner_is_listed_with_its_error() -> None:
    row = _row(_page("--only=calculon", "--question=llama-7b"), "Calculon")
    assert row[-1] == "failed: `ModuleNotFoundError: No module named 'calculon'`"


def test_torch_recomputes_where_memory_is_short_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pulp", reason="torch's solver needs the extra `peers`")
    pytest.importorskip("pwlf", reason="torch's solver needs the extra `peers`")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from peers_question import Question
    from peers_torch_sac import built, module_graph, recomputed
    from torch.distributed._tools.ilp_utils import get_peak_memory_runtime_baseline

    question = Question("tiny", TINY, sequence_length=256, global_batch_size=64, hardware="dgx-a100-80gb", num_nodes=1)
    graph = module_graph(lambda: built(question), (8, question.sequence_length))
    peak_bytes, _ = get_peak_memory_runtime_baseline(graph)
    ample = recomputed(graph, 2 * peak_bytes, 1, "ample", 0.0)
    short = recomputed(graph, int(0.99 * peak_bytes), 1, "short", 0.0)
    assert " 0 of " in ample.chosen
    assert " 0 of " not in short.chosen
    # CBC holds constraints to a millionth.
    assert short.memory_bytes is not None and short.memory_bytes <= 0.99 * peak_bytes * (1 + 1e-6)
