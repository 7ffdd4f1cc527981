"""What a person should know of a model that was traced without anything failing."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_leaves

from planner.model_graph import ModelSource
from planner.trace.fake.fake_model import FakeModel


def notices(source: ModelSource, model: FakeModel, sequence_length: int | None) -> Iterator[str]:
    """Yields sentences, each about something that the trace does not follow or that looks like a mistake.

    Args:
        source: The model.
        model: What was traced.
        sequence_length: Tokens per sample that were asked for; None: the model's default.
    """
    if any(type(module).__name__ == "OptimizedModule" for module in model.module.modules()):
        yield (
            "torch.compile is not followed: operators that it fuses take less time and memory than those of the eager "
            "model, which were traced"
        )
    if sequence_length is not None and source.kind != "hf_config":
        tensors = [leaf for leaf in tree_leaves(model.batch) if isinstance(leaf, torch.Tensor)]
        if not any(sequence_length in tensor.shape for tensor in tensors):
            yield (
                f"no tensor of the batch has an axis of {sequence_length}: does the callable make its batch of "
                "sequence_length tokens?"
            )
