"""What a script of the user's own may hold beyond the prediction, under the configuration that it brings."""

from __future__ import annotations

from collections.abc import Iterator

from costmodels.engine import Engine
from costmodels.memory import at_rest
from costmodels.states import FP32_BYTES, PARAMETER_WIDTH_BYTES, shard_elements
from planner.choose.candidate import Candidate
from planner.choose.setting import Setting
from planner.read.given_config import GivenConfig
from planner.report.figures import bytes_text


def own_script(asked: Setting, engine: Engine, given: GivenConfig, chosen: Candidate) -> Iterator[str]:
    """Yields a sentence for each thing that the emitted launcher does, and a script need not do.

    Args:
        asked: Model, machine and job.
        engine: The one with the given settings.
        given: The user's configuration.
        chosen: What was predicted under it.
    """
    if given.knobs.stage == 3:
        yield _built_whole(asked, chosen)
    # Of SGD, torch's own holds nothing beside the gradients; what is offloaded is updated on the host.
    if given.optimizer is None and asked.job.optimizer != "sgd" and given.offload == "none":
        yield from _not_fused(asked, engine, given, chosen)


def _built_whole(asked: Setting, chosen: Candidate) -> str:
    """Source: `Init`, deepspeed/runtime/zero/partition_parameters.py, 0.19.8: it partitions layer by layer."""
    whole_bytes = PARAMETER_WIDTH_BYTES[asked.job.precision] * asked.workload.num_params
    built_bytes = chosen.predicted.memory.init_peak_bytes
    return (
        f"building needs {bytes_text(built_bytes)} per rank where the model is made within deepspeed.zero.Init, as "
        f"launch.py does: a script that makes it whole on the device first needs {bytes_text(whole_bytes)} more"
    )


def _not_fused(asked: Setting, engine: Engine, given: GivenConfig, chosen: Candidate) -> Iterator[str]:
    """Source: `_single_tensor_adam` and `_multi_tensor_adam`, torch/optim/adam.py, 2.13: a tensor of roots."""
    memory = engine.memory(asked.workload, chosen.assignment, chosen.shape)
    num_trained = asked.workload.num_trainable_params
    updated = num_trained if given.knobs.stage == 0 else shard_elements(num_trained, chosen.shape.world_size)
    if given.knobs.stage == 3:
        updated = min(updated, given.knobs.sub_group_size)
    more_bytes = FP32_BYTES * updated
    update_bytes = at_rest(asked.workload, memory).total_bytes + memory.during_update.total_bytes
    needed_bytes = update_bytes + more_bytes
    if needed_bytes <= chosen.predicted.memory.peak_bytes:
        return
    text = (
        "the config leaves the optimizer to the script, and the prediction is of one that is fused: torch's own Adam "
        f"without fused=True needs {bytes_text(more_bytes)} beside the update's {bytes_text(update_bytes)}, "
        f"{bytes_text(needed_bytes)} in all"
    )
    over = needed_bytes > asked.budget_bytes
    yield f"{text}, and {bytes_text(asked.budget_bytes)} are available: it does not fit" if over else text
