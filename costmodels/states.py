"""The model states of a rank in whole bytes: parameters, secondary copy, gradients and optimizer states.

Each is held in shards of ceil(P / degree) elements per block, so the fullest rank is counted. What an engine holds
beyond these (padding of its own, buckets, second copies) is that engine's term.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sympy import ceiling

from costmodels.engine import Assignment
from costmodels.lower import Formula
from costmodels.strategy import Precision, StepShape, Strategy
from costmodels.symbols import (
    GRAD_DEGREE,
    GRAD_WIDTH,
    NUM_PARAMS,
    OPTIM_DEGREE,
    OPTIM_WIDTH,
    PARAM_DEGREE,
    PARAM_WIDTH,
    SECONDARY_DEGREE,
)
from costmodels.workload import Block, Workload

_ZERO = "ZeRO (arXiv 1910.02054), section 3.1 and figure 1"

PARAMETER_BYTES = Formula(
    "parameters",
    PARAM_WIDTH * ceiling(NUM_PARAMS / PARAM_DEGREE),
    (PARAM_WIDTH, NUM_PARAMS, PARAM_DEGREE),
    "bytes",
    _ZERO,
)
SECONDARY_BYTES = Formula(
    "secondary parameters",
    PARAM_WIDTH * ceiling(NUM_PARAMS / SECONDARY_DEGREE),
    (PARAM_WIDTH, NUM_PARAMS, SECONDARY_DEGREE),
    "bytes",
    "ZeRO++ (arXiv 2306.10209), section 3.2",
)
GRADIENT_BYTES = Formula(
    "gradients",
    GRAD_WIDTH * ceiling(NUM_PARAMS / GRAD_DEGREE),
    (GRAD_WIDTH, NUM_PARAMS, GRAD_DEGREE),
    "bytes",
    _ZERO,
)
OPTIMIZER_BYTES = Formula(
    "optimizer states",
    OPTIM_WIDTH * ceiling(NUM_PARAMS / OPTIM_DEGREE),
    (OPTIM_WIDTH, NUM_PARAMS, OPTIM_DEGREE),
    "bytes",
    _ZERO,
)

PARAMETER_WIDTH_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
"""c_p: bytes of one element that the model computes with. Source: IEEE 754; bfloat16."""

FP32_BYTES = 4

NUM_MOMENTS: dict[str, int] = {"adamw": 2, "adam": 2, "sgd": 0, "sgd_momentum": 1}
"""fp32 tensors that an optimizer keeps per parameter. Source: torch.optim 2.13 (AdamW, Adam: exp_avg, exp_avg_sq;
SGD: none, or a momentum buffer)."""


@dataclass(frozen=True, slots=True)
class StateWidths:
    """Bytes per parameter of each model state."""

    parameter: int
    """c_p."""
    gradient: int
    """c_g, as kept; c_r, as sent, is the same in the ideal schedule."""
    moments: int
    """The optimizer's own fp32 tensors."""
    master: int
    """The fp32 copy that the optimizer updates; 0 where the parameters are fp32 themselves."""

    @property
    def optimizer(self) -> int:
        """k: moments and master copy."""
        return self.moments + self.master


def state_widths(precision: Precision, optimizer: str) -> StateWidths:
    """Returns the bytes per parameter: 2, 2 and k = 12 for Adam in half precision, 4, 4 and k = 8 in fp32.

    Args:
        precision: what the model computes in.
        optimizer: a key of `NUM_MOMENTS`.

    Raises:
        ValueError: an optimizer whose states are not known.

    Source: ZeRO (arXiv 1910.02054), section 3.1: mixed-precision Adam has K = 12.
    """
    if optimizer not in NUM_MOMENTS:
        raise ValueError(f"the states of optimizer {optimizer!r} are not known; known are {', '.join(NUM_MOMENTS)}")
    width = PARAMETER_WIDTH_BYTES[precision]
    master = 0 if precision == "fp32" else FP32_BYTES
    return StateWidths(width, width, NUM_MOMENTS[optimizer] * FP32_BYTES, master)


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Model states of one rank, in bytes."""

    parameters: int = 0
    secondary: int = 0
    """A second, smaller shard group's copy of the parameters."""
    gradients: int = 0
    optimizer_states: int = 0

    @property
    def total_bytes(self) -> int:
        """All four."""
        return self.parameters + self.secondary + self.gradients + self.optimizer_states

    def __add__(self, other: StateBytes) -> StateBytes:
        return StateBytes(
            self.parameters + other.parameters,
            self.secondary + other.secondary,
            self.gradients + other.gradients,
            self.optimizer_states + other.optimizer_states,
        )

    def times(self, count: int) -> StateBytes:
        """Returns the states of `count` equal blocks."""
        return StateBytes(
            self.parameters * count, self.secondary * count, self.gradients * count, self.optimizer_states * count
        )


def shard_elements(num_elements: int, degree: int) -> int:
    """Returns the elements of the fullest of `degree` shards: num_elements / degree, rounded up."""
    return -(-num_elements // degree)


def has_secondary_copy(strategy: Strategy) -> bool:
    """Returns whether a second partition of the parameters is held: 1 < s < p; s = 1 only keeps them a while."""
    return 1 < strategy.secondary_degree < strategy.param_degree


def state_bytes(num_params: int, num_trainable_params: int, strategy: Strategy, widths: StateWidths) -> StateBytes:
    """Returns the model states of a rank for parameters sharded together.

    Args:
        num_params: elements, frozen ones included; frozen ones are sharded apart and have no G and OS.
        num_trainable_params: elements of them that are trained.
        strategy: the degrees.
        widths: bytes per element.

    Source: design of the search space: c_p P/p + secondary copy + c_g P/g + k P/o; ZeRO (arXiv 1910.02054), figure 1.
    """
    parts = (num_trainable_params, num_params - num_trainable_params)
    secondary = has_secondary_copy(strategy)
    return StateBytes(
        sum(PARAMETER_BYTES(widths.parameter, part, strategy.param_degree) for part in parts),
        sum(SECONDARY_BYTES(widths.parameter, part, strategy.secondary_degree) for part in parts) if secondary else 0,
        GRADIENT_BYTES(widths.gradient, num_trainable_params, strategy.grad_degree),
        OPTIMIZER_BYTES(widths.optimizer, num_trainable_params, strategy.optim_degree),
    )


def num_block_params(workload: Workload, block: Block) -> tuple[int, int]:
    """Returns the elements that a block owns: (all, trainable)."""
    num_params = num_trainable = 0
    for index in block.parameters:
        num_elements = workload.parameters[index].num_elements
        num_params += num_elements
        num_trainable += num_elements if workload.parameters[index].trainable else 0
    return num_params, num_trainable


def model_state_bytes(workload: Workload, assignment: Assignment, shape: StepShape) -> StateBytes:
    """Returns the model states of the fullest rank, each block sharded as its class is assigned."""
    widths = state_widths(shape.precision, shape.optimizer)
    equal = Counter((*num_block_params(workload, block), block.block_class) for block in workload.blocks)
    total = StateBytes()
    for (num_params, num_trainable, block_class), count in equal.items():
        total += state_bytes(num_params, num_trainable, assignment[block_class], widths).times(count)
    return total
