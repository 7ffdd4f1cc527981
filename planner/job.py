"""What the user asks for, apart from the model and the machine."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from costmodels.strategy import Precision


class Job(BaseModel):
    """A training job: the batch, the numbers, and what the planner may choose.

    Raises:
        pydantic.ValidationError: A field has a value that it cannot have; a `ValueError`. Whether the fields go
            together with a model and a machine is for `planner.plan` to say, with an `InputError`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    global_batch_size: PositiveInt
    """Samples per optimizer step over all ranks."""
    sequence_length: PositiveInt | None = None
    micro_batch_size: PositiveInt | None = None
    """Samples per rank and micro-batch; None: the planner chooses."""
    precision: Precision = "bf16"
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    engine: Literal["auto", "deepspeed", "fsdp"] = "auto"
    recompute: Literal["auto", "none", "full"] = "auto"
    offload: Literal["auto", "none", "optimizer"] = "auto"
    allow_lossy: bool = False
    memory_budget_bytes: PositiveInt | None = None
    """Bytes of device memory per rank that a plan may use; None: what the profile says can be had."""
    solve_time_limit_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds for the solver, which then gives the best choice found, with its gap: on another day another one. None: a
    limit of work, the same on every machine, so that plans stay reproducible."""
