"""Examples of training in one's own loop, and plain training beside them: what the ranks of their tests run."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

EXAMPLES = Path(__file__).parents[2] / "examples"
LLAMA = Path(__file__).parent / "tiny_llama"


def run_example(name: str, plan: str, *arguments: Any) -> tuple[Any, str]:
    """Runs an example's `train` on this rank; returns what it returned, and what it printed."""
    module = _example(name, plan)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        returned = module.train(*arguments)
    return returned, shown.getvalue()


def run_trainer(plan: str, output: str, num_steps: int, resume: bool) -> dict[str, Any]:
    """Trains by the sharded Trainer, and returns its losses by step, and the loss that it evaluates after them."""
    module = _example("hf_trainer", plan)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = module.train(str(LLAMA), plan, output, num_steps, resume)
        evaluated = trainer.evaluate(module.Counting())
    return {"losses": _logged(trainer, "loss"), "evaluated": evaluated["eval_loss"]}


def run_plain_trainer(plan: str, output: str, num_steps: int) -> dict[str, Any]:
    """Trains by the Trainer alone, which wraps the model in DDP."""
    module = _example("hf_trainer", plan)
    torch.manual_seed(0)
    model = module.AutoModelForCausalLM.from_config(module.AutoConfig.from_pretrained(str(LLAMA)))
    arguments = module.arguments_of(output, plan, num_steps)
    arguments.max_grad_norm = 1.0
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = module.Trainer(
            model, arguments, train_dataset=module.Counting(), data_collator=module.default_data_collator
        )
        trainer.train()
        evaluated = trainer.evaluate(module.Counting())
    return {"losses": _logged(trainer, "loss"), "evaluated": evaluated["eval_loss"]}


def run_plain_accelerate(plan: str, num_micro_batches: int) -> list[float]:
    """Trains an epoch as the example does, with all prepared by Accelerate, which wraps the model in DDP."""
    module = _example("accelerate_loop", plan)
    accelerator = module.Accelerator(cpu=True, gradient_accumulation_steps=num_micro_batches)
    torch.manual_seed(0)
    model, example = module.small_gpt(micro_batch_size=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = module.LinearLR(optimizer, start_factor=0.1, total_iters=10)
    loader = DataLoader(module.Counting(256, 64), len(example["tokens"]), shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, loss = [], torch.zeros(())
    for batch in loader:
        with accelerator.accumulate(model):
            loss_of_batch = model(**batch)
            accelerator.backward(loss_of_batch)
            loss += loss_of_batch.detach() / num_micro_batches
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                losses.append(accelerator.reduce(loss, "mean").item())
                loss.zero_()
    return losses


def _logged(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def _example(name: str, plan: str) -> Any:
    """Imports an example as a rank of torchrun does, with the plan's folder on its path."""
    rank = str(dist.get_rank())
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(dist.get_world_size())}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}
    for folder in (str(EXAMPLES), plan):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    return importlib.import_module(name)
