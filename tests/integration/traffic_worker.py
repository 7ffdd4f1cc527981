"""Runs cases on real DeepSpeed and writes what each rank recorded: `torchrun traffic_worker.py CASES.json OUT`."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import deepspeed
import torch
import torch.distributed as dist
from deepspeed_cases import run_cases

from runtime.load_model import build
from runtime.recompute import recompute
from runtime.record_traffic import RecordTraffic
from runtime.weights import sharded_model, whole_model

LINEAR = torch.nn.functional.linear


def run(case: dict[str, Any]) -> list[list[Any]]:
    config = case["config"]
    made = functools.partial(build, case["spec"], case["kind"], {}, 2, 8)
    _, batch = made()
    model = whole_model(made, 0)
    if config["zero_optimization"]["stage"] == 3:
        model = sharded_model(made, 0, config, model if dist.get_rank() == 0 else None)
    recompute(model, case["recompute"])
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=[p for p in model.parameters() if p.requires_grad], config=config
    )
    for _ in range(3):
        with RecordTraffic() as recorder:  # the last step's is kept
            for _ in range(config["gradient_accumulation_steps"]):
                output = engine(**batch)
                engine.backward(getattr(output, "loss", output))
                engine.step()
    engine.destroy()
    torch.nn.functional.linear = LINEAR  # stage 3 leaves its own in place
    return [[m.operation, m.degree_from, m.degree_to, m.message_bytes] for m in recorder.messages]


if __name__ == "__main__":
    run_cases(run)
