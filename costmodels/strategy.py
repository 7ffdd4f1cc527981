"""One point of the search space: the degrees of P, G and OS, and what goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Recompute = Literal["none", "full"]
Offload = Literal["none", "optimizer", "all"]
"""What lies in the host's memory: optimizer states and the gradients that update them, or the parameters too."""
Precision = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True, order=True)
class Strategy:
    """The strategy of one block (or of a class of equal blocks)."""

    param_degree: int
    """p: ranks that together hold one copy of the parameters in forward."""
    secondary_degree: int
    """s: the same for backward. s = p: gathered anew over p. s = 1 < p: kept gathered from forward. p = N, 1 < s < N:
    a secondary partition (ZeRO++ hpZ) of degree s beside the primary one."""
    grad_degree: int
    """g: ranks that together hold one copy of the reduced gradients."""
    optim_degree: int
    """o: ranks that together hold one copy of the optimizer states."""
    recompute: Recompute = "none"
    quantized_weights: bool = False
    quantized_gradients: bool = False
    offload: Offload = "none"
    hierarchical: bool = False
    """Collectives that span several levels go level by level; else at once."""

    @property
    def degrees(self) -> tuple[int, int, int]:
        """(p, g, o)."""
        return (self.param_degree, self.grad_degree, self.optim_degree)


@dataclass(frozen=True, slots=True)
class StepShape:
    """The size of a step: everything beside the model and the strategy that decides its memory and traffic."""

    world_size: int
    micro_batch_size: int
    num_micro_batches: int
    """M: micro-batches per optimizer step."""
    precision: Precision = "bf16"
    optimizer: str = "adamw"
    device: Literal["cuda", "cpu"] = "cuda"
    ranks_per_node: int | None = None
    """Where groups end at nodes, as in quantized reductions; None: not known."""
    level_sizes: tuple[int, ...] = ()
    """Of the machine, inner first, where collectives go level by level; none: not known."""
