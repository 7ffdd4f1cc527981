"""llm-analysis: formulas of memory and latency, here asked for each ZeRO stage and each micro-batch that fits by it."""

from __future__ import annotations

import time

from peers_question import Answer, Question

TITLE = "llm-analysis"
SOURCE = "llm-analysis.readthedocs.io, github.com/cli99/llm-analysis at d841e40"
SEARCHES = "nothing: one ZeRO stage and recomputation at a time; it tells the greatest micro-batch that fits"
ASKED = ("gpt2", "llama-7b", "llama-70b")

MODELS = {"GPT-2, 124 M": "gpt2", "Llama-2-7B": "NousResearch_Llama-2-7b-hf"}
MODELS["Llama-2-70B"] = "upstage_Llama-2-70b-instruct-v2"
GPUS = {"p4d-a100-40gb": "a100-sxm-40gb", "dgx-a100-80gb": "a100-sxm-80gb"}


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns the fastest of ZeRO stages 1 to 3, micro-batches and recomputation or none, by its times."""
    from llm_analysis.analysis import train

    started_s = time.perf_counter()
    fitting = []
    num_considered = 0
    per_rank = question.global_batch_size // question.num_ranks
    for stage in (1, 2, 3):
        for recomputation in (0, 4):
            for micro_batch in (2**power for power in range(per_rank.bit_length())):
                num_considered += 1
                said = _asked(train, question, stage, recomputation, micro_batch)
                if micro_batch > said["max_batch_size_per_gpu"]:  # it says so, and goes on
                    continue
                fitting.append((said["latency_per_iter"], stage, recomputation, micro_batch, said))
    seconds = time.perf_counter() - started_s
    note = "FLOPs at peak by default; searched by a loop of ours over its function"
    if not fitting:
        return (Answer("nothing fits", None, None, seconds, num_considered, note),)
    step_s, stage, recomputation, micro_batch, said = min(fitting, key=lambda each: each[:4])
    recomputed = ", all recomputed" if recomputation else ""
    chosen = f"stage {stage}{recomputed}, micro-batch {micro_batch} x {per_rank // micro_batch}"
    memory_bytes = int(said["estimated_peak_memory_per_gpu"])
    return (Answer(chosen, memory_bytes, step_s, seconds, num_considered, note),)


def _asked(train, question: Question, stage: int, recomputation: int, micro_batch: int):  # type: ignore[no-untyped-def]
    return train(
        model_name=MODELS[question.name],
        gpu_name=GPUS[question.hardware],
        batch_size_per_gpu=micro_batch,
        global_batch_size=question.global_batch_size,
        seq_len=question.sequence_length,
        total_num_tokens=question.global_batch_size * question.sequence_length,
        ds_zero=stage,
        dp_size=question.num_ranks,
        activation_recomputation=recomputation,
        log_level="CRITICAL",
    )
