"""Writes the DeepSpeed configuration of a strategy: explicit numbers, so that the file alone says what will run."""

from __future__ import annotations

from typing import Any

from costmodels.deepspeed.knobs import DEFAULT_LEAF_CLASSES, Knobs, choose_knobs
from costmodels.engine import Assignment
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

_ADAM = {"betas": [0.9, 0.999], "eps": 1e-8, "torch_adam": True, "fused": True}

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01, **_ADAM}},
    # Without adam_w_mode false, DeepSpeed takes the name Adam for AdamW (engine.py, _configure_basic_optimizer).
    "adam": {"type": "Adam", "params": {"lr": 1e-3, "weight_decay": 0.0, "adam_w_mode": False, **_ADAM}},
    "sgd": {"type": "SGD", "params": {"lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0}},
}
"""torch's own optimizers with torch's own defaults. `fused` reaches torch.optim through DeepSpeed 0.19.8 and updates
in place, on CPU and CUDA: no temporary of the size of the states, which the default on CUDA (`foreach`) has."""

FP16 = {"enabled": True, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "min_loss_scale": 1}


def ds_config(
    workload: Workload, assignment: Assignment, shape: StepShape, knobs: Knobs | None = None
) -> dict[str, Any]:
    """Returns a configuration for DeepSpeed 0.19.8 that trains as the assignment says.

    Args:
        workload: The traced step.
        assignment: A strategy that DeepSpeed has, for each class of blocks.
        shape: Micro-batch, number of micro-batches, precision, optimizer and device.
        knobs: DeepSpeed's settings; None: those that the planner chooses.

    Raises:
        KeyError: The optimizer is not one that the planner knows.
    """
    knobs = knobs or choose_knobs(workload, assignment, shape)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": shape.micro_batch_size,
        "gradient_accumulation_steps": shape.num_micro_batches,
        "gradient_clipping": 0.0,
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
        "optimizer": OPTIMIZERS[shape.optimizer],
        "zero_optimization": _zero_optimization(knobs) | _on_host(assignment[0], shape),
        "data_types": {"grad_accum_dtype": knobs.grad_accum_precision or shape.precision},
    }
    if shape.optimizer == "sgd" and knobs.stage > 0:
        config["zero_allow_untested_optimizer"] = True
    if shape.precision == "bf16":
        config["bf16"] = {"enabled": True, "check_grad_overflow": knobs.check_grad_overflow}
    if shape.precision == "fp16":
        config["fp16"] = dict(FP16)
    return config


def _on_host(strategy: Strategy, shape: StepShape) -> dict[str, Any]:
    """Returns what goes to host memory; a CPU's memory cannot be pinned for a device."""
    place = {"device": "cpu", "pin_memory": shape.device == "cuda"}
    sections = {"none": (), "optimizer": ("offload_optimizer",), "all": ("offload_optimizer", "offload_param")}
    return {section: dict(place) for section in sections[strategy.offload]}


def _zero_optimization(knobs: Knobs) -> dict[str, Any]:
    if knobs.stage == 0:
        return {"stage": 0}
    section: dict[str, Any] = {
        "stage": knobs.stage,
        "overlap_comm": knobs.overlap_comm,
        "contiguous_gradients": knobs.contiguous_gradients,
        "reduce_scatter": knobs.reduce_scatter,
        "reduce_bucket_size": knobs.reduce_bucket_size,
    }
    if knobs.stage < 3:
        section["allgather_partitions"] = True
        section["allgather_bucket_size"] = knobs.allgather_bucket_size
        section["use_multi_rank_bucket_allreduce"] = knobs.use_multi_rank_bucket_allreduce
        if not knobs.compute_grad_norm:
            section["compute_grad_norm"] = False
        return section
    section |= {
        "sub_group_size": knobs.sub_group_size,
        "stage3_prefetch_bucket_size": knobs.prefetch_bucket_size,
        "stage3_param_persistence_threshold": knobs.param_persistence_threshold,
        "stage3_model_persistence_threshold": knobs.model_persistence_threshold,
        "stage3_max_live_parameters": knobs.max_live_parameters,
        "stage3_max_reuse_distance": knobs.max_reuse_distance,
    }
    if knobs.hpz_partition_size > 1:
        section["zero_hpz_partition_size"] = knobs.hpz_partition_size
    if knobs.quantized_weights:
        section["zero_quantized_weights"] = True
    if knobs.quantized_gradients:
        section["zero_quantized_gradients"] = True
    leaves = {
        "classes": knobs.leaf_classes if knobs.leaf_classes != DEFAULT_LEAF_CLASSES else (),
        "names": knobs.leaf_names,
        "name_suffixes": knobs.leaf_name_suffixes,
    }
    if any(leaves.values()):
        section["leaf_module"] = {name: list(value) for name, value in leaves.items() if value}
    return section
