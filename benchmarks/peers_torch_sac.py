"""torch's own solver of selective recomputation, `sac_milp`, on fake tensors, as its tests drive it."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from peers_model import empty_model
from peers_question import Answer, Question
from torch import nn

TITLE = "torch.distributed._tools.sac_ilp"
SOURCE = "torch 2.13.0, torch/distributed/_tools/sac_ilp.py; needs pulp and pwlf"
SEARCHES = (
    "which modules to recompute and how much of each to discard, for one micro-batch; "
    "FSDP divides parameters and gradients"
)
ASKED = ("gpt2", "llama-7b")

MICRO_BATCHES = {"GPT-2, 124 M": (32, 64), "Llama-2-7B": (4, 8)}
"""It is asked of one micro-batch at a time: of the one that Shardplan chooses, and of twice that."""

GIB = 2**30
TFLOPS, DRAM_GB_PER_S = 312, 2039
"""What it asks the CUDA device for. Source: NVIDIA A100 80GB datasheet."""


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns what it recomputes at two micro-batches, within what the profile has less its optimizer states."""
    from hw_profiles.load import load

    device = load(question.hardware, question.num_nodes).device
    num_params = sum(parameter.numel() for parameter in empty_model(question).parameters())
    # It counts no optimizer states: fp32 weights and two moments per rank, 12 bytes per parameter, are taken off.
    budget_bytes = device.memory_bytes - device.reserved_bytes - 12 * num_params // question.num_ranks
    return tuple(_solved(question, micro_batch, budget_bytes) for micro_batch in MICRO_BATCHES[question.name])


def _solved(question: Question, micro_batch: int, budget_bytes: int) -> Answer:
    started_s = time.perf_counter()
    graph = module_graph(lambda: built(question), (micro_batch, question.sequence_length))
    traced_s = time.perf_counter() - started_s
    return recomputed(graph, budget_bytes, question.num_ranks, f"micro-batch {micro_batch}", traced_s)


def recomputed(graph, budget_bytes: int, num_ranks: int, name: str, traced_s: float) -> Answer:  # type: ignore[no-untyped-def]
    """Returns what `sac_milp` chooses within a budget, with its upper bound of the peak."""
    from torch.distributed._tools.sac_ilp import sac_milp

    started_s = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        decisions, recompute_ms, peak_bytes = sac_milp(graph, budget_bytes / GIB, world_size=num_ranks)
    seconds = time.perf_counter() - started_s
    note = f"traced in {traced_s:.0f} s; memory: its bound, no optimizer states; stops at a gap of 5 % or 180 s"
    if peak_bytes < 0:
        return Answer(f"{name}: infeasible or no solution in time", None, None, seconds, len(graph.nodes), note)
    chosen = f"{name}: {len(decisions)} of {len(graph.nodes)} modules recomputed, {recompute_ms:g} ms"
    return Answer(chosen, peak_bytes, None, seconds, len(graph.nodes), note)


def module_graph(build: Callable[[], nn.Module], shape: tuple[int, int]):  # type: ignore[no-untyped-def]
    """Returns torch's tree of modules with memory, times and trade-offs of one step, forward and backward.

    Source: torch 2.13.0, test/distributed/_tools/test_sac_ilp.py drives the tools in this order.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.ilp_utils import aggregate_stats, parse_module_info
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator
    from torch.distributed._tools.sac_estimator import SACEstimator

    told = (
        patch("torch.cuda.is_available", return_value=True),
        patch("torch.utils._runtime_estimation.get_device_tflops", return_value=TFLOPS),
        patch("torch.utils._runtime_estimation.get_gpu_dram_gbps", return_value=DRAM_GB_PER_S),
    )
    with FakeTensorMode(), contextlib.redirect_stdout(io.StringIO()):
        model = build()
        tokens = torch.zeros(shape, dtype=torch.long)

        def step() -> None:
            model(input_ids=tokens, labels=tokens).loss.backward()

        memory = MemTracker()
        memory.track_external(model)
        with memory:
            step()
            model.zero_grad()
            memory.reset_mod_stats()
            step()
        with contextlib.ExitStack() as stack:
            for each in told:
                stack.enter_context(each)
            with RuntimeEstimator()("operator-level-cost-model") as runtime:
                step()
            with SACEstimator()("operator-level-cost-model") as trade_offs:
                step()
        return parse_module_info(aggregate_stats(model, memory, runtime, trade_offs, torch.device("cpu")))


def built(question: Question, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """Returns the model with weights of that type, on whatever tensors are made where it is called."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**question.config)
    config.use_cache = False
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    for module in list(model.modules()):
        rotary = module._modules.pop("rotary_emb", None)
        if rotary is not None:
            # torch's tracker ends with a KeyError at a module that has no backward: a function is none.
            object.__setattr__(module, "rotary_emb", rotary.forward)
    return model
