"""DeepSpeed's estimators of model states, and the memory by which its autotuner decides what to try on the cluster."""

from __future__ import annotations

import time

from peers_model import empty_model, num_saved_bytes
from peers_question import Answer, Question

TITLE = "DeepSpeed's estimators and autotuner"
SOURCE = "deepspeed.readthedocs.io/en/latest/memory.html, www.deepspeed.ai/tutorials/autotuning"
SEARCHES = (
    "nothing (the estimators print each offload option of one stage); "
    "the autotuner stages and micro-batches, by running them"
)
ASKED = ("gpt2", "llama-7b", "llama-70b")


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns what the estimators print without offload, and which trials the autotuner would start."""
    model = empty_model(question)
    num_params = sum(parameter.numel() for parameter in model.parameters())
    return (*_estimates(question, model, num_params), _autotuner(question, num_params))


def _estimates(question: Question, model: object, num_params: int) -> tuple[Answer, ...]:
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    started_s = time.perf_counter()
    sizes = {"num_gpus_per_node": question.ranks_per_node, "num_nodes": question.num_nodes, "cpu_offload": False}
    _, stage_2_bytes = stage_1_and_2.estimate_zero2_model_states_mem_needs(num_params, **sizes)
    _, largest = stage3.model_to_params(model)
    _, stage_3_bytes, _ = stage3.estimate_zero3_model_states_mem_needs(
        num_params, largest, **sizes, cpu_offload_params=False
    )
    seconds = time.perf_counter() - started_s
    note = "model states alone, as documented"
    return (
        Answer("stage 2, no offload", stage_2_bytes, None, seconds, None, note),
        Answer("stage 3, no offload", stage_3_bytes, None, seconds, None, note),
    )


def _autotuner(question: Question, num_params: int) -> Answer:
    from hw_profiles.load import load

    device_bytes = load(question.hardware, question.num_nodes).device.memory_bytes
    activation_bytes = num_saved_bytes(question)
    started_s = time.perf_counter()
    trials = []
    for stage in range(4):
        states_bytes = states_of_autotuner(num_params, stage, question.num_nodes, question.ranks_per_node)
        # Source: deepspeed 0.19.8, autotuning/autotuner.py, tune and tune_space.
        if device_bytes > states_bytes + activation_bytes:
            trials.append((stage, int(device_bytes - states_bytes) // activation_bytes, states_bytes))
    seconds = time.perf_counter() - started_s
    if not trials:
        return Answer("nothing runnable, no tuning", None, None, seconds)
    said = ", ".join(f"{stage} up to micro-batch {most}" for stage, most, _ in trials)
    memory_bytes = int(trials[-1][2]) + activation_bytes
    note = "it asks a run for the activations of micro-batch 1: here those traced; memory of the last stage with them"
    return Answer(f"tries stages {said}", memory_bytes, None, seconds, len(trials), note)


def states_of_autotuner(num_params: int, stage: int, num_nodes: int, ranks_per_node: int) -> float:
    """Returns the bytes per rank by which the autotuner excludes a stage, by its own method."""
    from deepspeed.autotuning.autotuner import Autotuner
    from deepspeed.autotuning.config import DeepSpeedAutotuningConfig

    tuner = Autotuner.__new__(Autotuner)  # its constructor wants a command line and GPUs, the method neither
    tuner.exp_num_nodes, tuner.exp_num_gpus = num_nodes, ranks_per_node
    tuner.model_info = {"num_params": num_params}
    tuner.user_config = {"fp16": {"enabled": True}}
    tuner.autotuning_config = DeepSpeedAutotuningConfig({})
    return float(tuner.get_instantiation_memory_required_per_gpu(stage))
