"""The traced model: a `Workload` with its origin, in a form that can be saved and planned from without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from costmodels.strategy import Precision
from costmodels.workload import Workload

SCHEMA_VERSION = 3


class ModelSource(BaseModel):
    """Where the model came from, so that the launcher can build it again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: str
    """`/abs/FILE.py:CALLABLE`, `package.module:CALLABLE` or the absolute path of a Hugging Face config.json."""
    kind: Literal["file", "module", "hf_config"]
    arguments: dict[str, str] = {}
    """The `--model-arg`s, as given."""


class LargestActivation(BaseModel):
    """The largest tensor that forward makes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    """Where it is made; of logits, the module whose product they are."""
    are_logits: bool
    """As wide as the result of forward's last product."""
    shape: tuple[int, ...]
    """As traced, with the samples of the trace."""
    dtype: str
    bytes_per_sample: int


class ModelGraph(BaseModel):
    """What the trace found. `workload` is all that the cost models read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    name: str
    """A short name for people: the class of the module."""
    source: ModelSource
    precision: Precision
    device: Literal["cuda", "cpu"]
    """The device whose kernels' save sets were followed."""
    sequence_length: PositiveInt | None
    autocast: Literal["bf16", "fp16"] | None = None
    """The type of the products where fp32 weights run under `torch.autocast`."""
    traced_by: str
    """Which way made it: `fake` (the module run on fake tensors) or a fallback, `make_fx` or `static`."""
    lost: tuple[str, ...] = ()
    """What a fallback does not know, or bounds only, in sentences."""
    warnings: tuple[str, ...] = ()
    largest_activation: LargestActivation | None = None
    """None where the trace does not know."""
    workload: Workload
