r"""Trains a planned model with the Trainer of transformers.

    shardplan plan path/to/config.json --engine fsdp --hardware local-cpu --nodes 2 --ranks-per-node 2 \
        --global-batch-size 16 --micro-batch-size 2 --sequence-length 64 --precision fp32 --out my-plan
    PYTHONPATH=my-plan torchrun --nproc-per-node 4 examples/hf_trainer.py path/to/config.json my-plan

Tried with transformers 5.24 and accelerate 1.15. Give `max_norm` to `ShardedTrainer` and `max_grad_norm=0` to its
arguments, leave `bf16` and `fp16` unset (the plan has the precision; fp16 needs a loss scale that the Trainer does not
know of), and micro-batch and accumulation as the plan has them.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from shardplan_runtime import ShardedOptimizer, load, read_plan, save, shard, to_state_dict
from torch import nn
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments, default_data_collator


class ShardedTrainer(Trainer):
    """A Trainer whose model and optimizer are the runtime's."""

    def __init__(self, model: nn.Module, args: TrainingArguments, plan: str, max_norm: float, **options: Any) -> None:
        self.plan = read_plan(plan)
        self.max_norm = max_norm
        self.sharded = shard(model, self.plan, device=args.device)
        model._is_accelerate_prepared = True  # nothing is to be wrapped around it
        super().__init__(model=model, args=args, **options)

    def _move_model_to_device(self, *_: Any) -> None:
        """Leaves the model where it is."""

    def create_optimizer(self, *_: Any) -> torch.optim.Optimizer:
        """Makes the sharded optimizer, with the Trainer's learning rate and its rule of what decays."""
        if self.optimizer is None:
            decay = self.get_decay_parameter_names(self.model)
            names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
            groups = [
                {"params": [name for name in names if name in decay], "weight_decay": self.args.weight_decay},
                {"params": [name for name in names if name not in decay], "weight_decay": 0.0},
            ]
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            self.optimizer = ShardedOptimizer(
                self.sharded,
                torch.optim.AdamW,
                groups,
                max_norm=self.max_norm,
                lr=self.args.learning_rate,
                betas=betas,
                eps=self.args.adam_epsilon,
            )
            self.optimizer._is_accelerate_prepared = True
            self.optimizer.step_was_skipped = False
        return self.optimizer

    def _get_grad_norm(self, *_: Any, **__: Any) -> float | None:
        """Returns the norm of the last step: this one's is known when its gradients are reduced, in `step`."""
        return self.optimizer.norm

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Saves model, optimizer and scheduler so that any plan can load them."""
        save(self.optimizer, output_dir, step=self.state.global_step, extra=self.lr_scheduler.state_dict())

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Goes on from what was saved."""
        if checkpoint is not None:
            self.lr_scheduler.load_state_dict(load(self.optimizer, checkpoint).extra)

    def _load_from_checkpoint(self, *_: Any) -> None:
        """Leaves the weights to `_load_optimizer_and_scheduler`."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Writes whole weights, as `from_pretrained` reads them."""
        if _internal_call:
            return  # a checkpoint of the Trainer: the sharded one holds all
        folder = output_dir or self.args.output_dir
        save(
            self.optimizer, Path(folder) / "sharded", step=self.state.global_step, extra=self.lr_scheduler.state_dict()
        )
        if self.args.should_save:
            self.model.save_pretrained(folder, state_dict=to_state_dict(Path(folder) / "sharded"))
        dist.barrier()


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Samples to try it with: sequences that count on from anywhere, modulo 64."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(64) + 7 * index) % 64
        return {"input_ids": tokens, "labels": tokens}


def train(config: str, plan: str, output: str, num_steps: int, resume: bool = False) -> ShardedTrainer:
    """Trains a causal language model made from its `config.json`."""
    torch.manual_seed(0)  # equal weights on all ranks
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config))
    trainer = ShardedTrainer(
        model,
        arguments_of(output, plan, num_steps),
        plan,
        max_norm=1.0,
        train_dataset=Counting(),
        data_collator=default_data_collator,
    )
    trainer.train(resume_from_checkpoint=resume or None)
    trainer.save_model()
    return trainer


def arguments_of(output: str, plan: str, num_steps: int) -> TrainingArguments:
    """Returns the Trainer's arguments, with micro-batch and accumulation as the plan has them."""
    return TrainingArguments(
        output,
        use_cpu=not torch.cuda.is_available(),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=read_plan(plan).num_micro_batches,
        max_grad_norm=0,
        learning_rate=3e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        max_steps=num_steps,
        logging_steps=1,
        save_steps=5,
        report_to=[],
        disable_tqdm=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", help="config.json of the planned model, or its folder")
    parser.add_argument("plan", help="the folder of the plan")
    parser.add_argument("--output", default="trained", help="a folder that all ranks see")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    given = parser.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    train(given.config, given.plan, given.output, given.steps, given.resume)
    dist.destroy_process_group()
