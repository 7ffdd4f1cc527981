"""The keys of a DeepSpeed configuration: which there are, which were removed, and which the cost model cannot follow.

Source: deepspeed/runtime/config.py, constants.py and zero/config.py, 0.19.8.
"""

from __future__ import annotations

from typing import Any

TOP_LEVEL = [
    "activation_checkpointing",
    "aio",
    "autotuning",
    "bf16",
    "bfloat16",
    "checkpoint",
    "comms_logger",
    "communication_data_type",
    "compile",
    "csv_monitor",
    "data_efficiency",
    "data_types",
    "dataloader_drop_last",
    "disable_allgather",
    "disable_python_gc",
    "dump_state",
    "flops_profiler",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_allreduce_op",
    "gradient_clipping",
    "gradient_predivide_factor",
    "hybrid_engine",
    "log_level",
    "managed_gradient_accumulation",
    "memory_breakdown",
    "optimizer",
    "pipeline",
    "prescale_gradients",
    "scheduler",
    "seq_parallel_communication_data_type",
    "sequence_parallel_size",
    "steps_per_print",
    "tensor_parallel",
    "tensorboard",
    "timers",
    "torch_autocast",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "use_data_before_expert_parallelism",
    "vocabulary_size",
    "wall_clock_breakdown",
    "wandb",
    "weight_quantization",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "zero_optimization",
]

REMOVED_TOP_LEVEL = [
    "amp",
    "compression_training",
    "curriculum_learning",
    "eigenvalue",
    "elasticity",
    "graph_harvesting",
    "nebula",
    "progressive_layer_drop",
    "quantize_training",
    "sparse_attention",
    "sparse_gradients",
]

SIZES = [
    "reduce_bucket_size",
    "allgather_bucket_size",
    "sub_group_size",
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
]
"""Whole numbers of `zero_optimization` that the cost model reads, without prefix; named as in `Knobs`."""

FLAGS = [
    "overlap_comm",
    "contiguous_gradients",
    "reduce_scatter",
    "use_multi_rank_bucket_allreduce",
    "compute_grad_norm",
]
"""Booleans likewise."""

PREFIXED = [
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "gather_16bit_weights_on_model_save",
    "module_granularity_threshold",
    "use_all_reduce_for_fetch_params",
    "allgather_sequential",
]
"""Known with and without `stage3_`."""

REMOVED_ZERO = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")

NOT_FOLLOWED: dict[str, tuple[Any, ...]] = {
    "allgather_partitions": (True,),
    "allgather_sequential": (False,),
    "enable_sanity_checks": (False,),
    "legacy_stage1": (False,),
    "memory_efficient_linear": (True,),
    "module_granularity_threshold": (0,),
    "parameter_alignment": (False,),
    "round_robin_gradients": (False,),
    "use_all_reduce_for_fetch_params": (False,),
    "zenflow": (None,),
    "zero_quantized_nontrainable_weights": (False,),
}
"""Keys whose other values change traffic or memory in ways that the cost model does not have; these values are fine."""

HARMLESS = [
    "cpu_offload_use_pin_memory",
    "elastic_checkpoint",
    "gather_16bit_weights_on_model_save",
    "ignore_unused_parameters",
    "load_from_fp32_weights",
    "log_trace_cache_warnings",
    "override_module_apply",
    "pipeline_loading_checkpoint",
    "save_muon_momentum_buffer_in_memory",
    "stage3_gather_fp16_weights_on_model_save",
]
"""Keys that decide neither."""
