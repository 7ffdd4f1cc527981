"""Trains cases on real DeepSpeed and writes what each rank measured: `torchrun memory_worker.py CASES.json OUT`."""

from __future__ import annotations

import functools
import gc
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import deepspeed
import torch
import torch.distributed as dist
from deepspeed_cases import run_cases

from runtime.load_model import build
from runtime.recompute import recompute
from runtime.record_memory import MemoryRecorder
from runtime.weights import sharded_model, whole_model


def run(case: dict[str, Any]) -> dict[str, int]:
    config = case["config"]
    stage_3 = config["zero_optimization"]["stage"] == 3
    micro_batch_size = config["train_micro_batch_size_per_gpu"]
    made = functools.partial(build, case["spec"], "file", case["arguments"], micro_batch_size, case["sequence_length"])
    _, example = made()
    reference = whole_model(made, 0) if stage_3 and dist.get_rank() == 0 else None
    with MemoryRecorder(torch.device("cpu")) as memory:
        model = sharded_model(made, 0, config, reference) if stage_3 else whole_model(made, 0)
        batch = {name: value.clone() for name, value in example.items()}
        recompute(model, case["recompute"])
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        memory.built()
        for _ in range(3):
            for _ in range(config["gradient_accumulation_steps"]):
                engine.backward(engine(**batch))
                engine.step()
            memory.step_ended()
        # Freed within the recording: what is freed outside of it would be counted in the next case.
        engine.destroy()
        del engine, model, batch
        gc.collect()
    return asdict(memory.use())


if __name__ == "__main__":
    run_cases(run)
