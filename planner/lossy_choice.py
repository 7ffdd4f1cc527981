"""Which messages of a block are quantized, where that is allowed: those that are over sooner than exact ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from costmodels.communication import message_times
from costmodels.engine import Message
from costmodels.fsdp.traffic import BlockTraffic, is_sent
from costmodels.strategy import Strategy
from planner.machine import Machine


class Lossy(NamedTuple):
    """What may be quantized."""

    weights: bool = False
    gradients: bool = False


EXACT = Lossy()


@dataclass(frozen=True, slots=True)
class LossyChoice:
    """Chooses for a block by its own messages alone, with what converting their numbers takes."""

    allowed: Lossy
    machine: Machine

    def weights(self, exact: BlockTraffic) -> bool:
        """Returns whether the block's gather before forward is faster as int8."""
        strategy = exact.strategy
        if not self.allowed.weights or strategy.param_degree == 1:
            return False
        lossy = replace(exact, strategy=replace(strategy, quantized_weights=True))
        return self._duration_ns([lossy.forward()]) < self._duration_ns([exact.forward()])

    def gradients(self, exact: BlockTraffic) -> bool:
        """Returns whether the block's reduction over g is faster as int4."""
        strategy: Strategy = exact.strategy
        if not self.allowed.gradients or strategy.grad_degree == 1 or exact.shape.ranks_per_node is None:
            return False
        lossy = replace(exact, strategy=replace(strategy, quantized_gradients=True))
        return self._duration_ns(lossy.reductions()) < self._duration_ns(exact.reductions())

    def _duration_ns(self, messages: Iterable[Message]) -> int:
        sent = tuple(replace(each, count=1) for each in messages if is_sent(each))
        return sum(each_ns for each_ns, _ in message_times(sent, self.machine.network, self.machine.speed))
