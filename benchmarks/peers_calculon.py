"""Calculon's search of the best execution, data parallelism alone: the part of its space that is also ours."""

from __future__ import annotations

import json
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from peers_question import Answer, Question

TITLE = "Calculon"
SOURCE = "github.com/calculon-ai/calculon at caa4b11, README.md; doi.org/10.1145/3581784.3607102"
SEARCHES = "tensor, pipeline and data parallelism, micro-batch, recomputation, sharded optimizer, overlap, offload"
ASKED = ("llama-7b", "llama-70b")

RECOMPUTE = ("full", "attn_only", "none")


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns the best of tensor and pipeline degree 1 on its A100 system, host memory left out, by its own search."""
    from calculon.llm import Llm, System
    from calculon.llm.optimal_execution import OptimalExecution

    system = _system()
    system["mem2"]["GiB"] = 0
    model = _model(question.config, question.sequence_length)
    started_s = time.perf_counter()
    best: list[Any] = []
    num_considered = 0
    for recompute in RECOMPUTE:
        for is_sharded in (True, False):
            found, count, _, _, _, _ = OptimalExecution.search(
                debug=False,
                top_n=1,
                layers=False,
                num_procs=question.num_ranks,
                max_batch_size=question.global_batch_size,
                datatype="float16",
                app=Llm.Application(model),
                syst=System(system),
                tp=1,
                pp=1,
                dp=question.num_ranks,
                ppint=1,
                batch_size=question.global_batch_size,
                activation_recompute=recompute,
                optimizer_sharding=is_sharded,
                tensor_par_comm_type="ar",
                fused_acts=[True],
                mbs_break=False,
                allow_tp_overlap=True,
                allow_dp_overlap=True,
            )
            best = OptimalExecution.update_list(best, found, 1)
            num_considered += count
    seconds = time.perf_counter() - started_s
    note = "data-parallel part alone; no embeddings or head, two matrices per feed-forward"
    if not best:
        return (
            Answer("nothing fits without tensor or pipeline parallelism", None, None, seconds, num_considered, note),
        )
    _, execution, stats = best[0]
    sharded = "optimizer sharded" if execution["optimizer_sharding"] else "replicated"
    size = execution["microbatch_size"]
    times = question.global_batch_size // question.num_ranks // size
    chosen = f"{sharded}, recomputation {execution['activation_recompute']}, micro-batch {size} x {times}"
    memory_bytes = int(stats["proc_mem_tier1_cap_req"])
    return (Answer(chosen, memory_bytes, stats["total_time"], seconds, num_considered, note),)


def _system() -> dict[str, Any]:
    import calculon

    package = Path(str(files(calculon)))
    system: dict[str, Any] = json.loads((package.parent / "systems" / "a100_80g.json").read_text())
    return system


def _model(config: dict[str, Any], sequence_length: int) -> dict[str, int]:
    heads = config["num_attention_heads"]
    # Its feed-forward has two matrices: as wide as makes them as many parameters as the three of a Llama.
    return {
        "hidden": config["hidden_size"],
        "feedforward": config["intermediate_size"] * 3 // 2,
        "seq_size": sequence_length,
        "attn_heads": heads,
        "attn_size": config["hidden_size"] // heads,
        "num_blocks": config["num_hidden_layers"],
    }
