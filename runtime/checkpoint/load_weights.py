"""Loads a plain `state_dict` into a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from runtime.checkpoint.coordinate import checkpoint_group, together
from runtime.checkpoint.fingerprint import Entry, Fingerprint
from runtime.checkpoint.load import refuse_other_model
from runtime.checkpoint.ranges import Training, value_key
from runtime.checkpoint.training_of import training_of


@torch.no_grad()
def load_weights(training: Any, state_dict: Mapping[str, Tensor]) -> None:
    """Replaces parameters and buffers by those of a `state_dict` of the whole model; optimizer states stay.

    All ranks call it, between two optimizer steps, each with the same `state_dict`: read it by
    `torch.load(..., mmap=True)`, and a rank brings to memory what it needs of it.

    Args:
        training: A `ShardedOptimizer`, or the engine that `deepspeed.initialize` returned.
        state_dict: Whole tensors by the model's names; of tied parameters, one is enough.

    Raises:
        LaunchError: It is of another model: in what they differ.
    """
    group = checkpoint_group()
    trained = training_of(training)
    named = together(group, lambda: _named(trained, state_dict))
    for each in trained.ranges():
        if each.key in named:
            each.values.copy_(named[each.key].reshape(-1)[each.first : each.first + each.values.numel()])
    trained.settle()


def _named(trained: Training, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors by the keys of a checkpoint."""
    trained.refuse_within_step()
    own = trained.fingerprint()
    tensors = {own.aliases.get(name, name): each for name, each in state_dict.items()}
    entries = {
        name: Entry(tuple(each.shape), own.entries[name].kind if name in own.entries else "unknown")
        for name, each in tensors.items()
    }
    refuse_other_model("state_dict", Fingerprint(entries, {}, ""), own)
    return {value_key(name): each for name, each in tensors.items()}
