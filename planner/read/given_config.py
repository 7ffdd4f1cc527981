"""A DeepSpeed configuration that a user brings, as far as it decides traffic and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodels.deepspeed.knobs import Knobs
from costmodels.strategy import Offload, Precision, Strategy
from planner.errors import InputError


@dataclass(frozen=True, slots=True)
class GivenConfig:
    """What a configuration says. None: it does not say, or says "auto"."""

    knobs: Knobs
    micro_batch_size: int | None
    num_micro_batches: int | None
    global_batch_size: int | None
    precision: Precision | None
    optimizer: str | None
    """`adamw`, `adam` or `sgd`."""
    warnings: tuple[str, ...] = ()
    offload: Offload = "none"

    def strategy(self, world_size: int, num_params: int) -> Strategy:
        """Returns the point of the search space at which this configuration runs on `world_size` ranks.

        Raises:
            InputError: A secondary partition that does not divide the ranks.
        """
        stage, secondary = self.knobs.stage, self.knobs.hpz_partition_size
        n = world_size
        if secondary > 1 and n % secondary:
            raise InputError(
                f"zero_hpz_partition_size: {secondary} does not divide {n} ranks; write a divisor, such as the "
                "ranks of one node"
            )
        if stage < 3 or n == 1:
            return self._beside(Strategy(1, 1, n if stage >= 2 else 1, n if stage >= 1 else 1))
        # A step names each parameter in forward and again in backward: a distance of two models reaches all of them.
        is_kept = self.knobs.max_reuse_distance >= 2 * num_params
        return self._beside(Strategy(n, secondary if secondary > 1 else (1 if is_kept else n), n, n))

    def _beside(self, strategy: Strategy) -> Strategy:
        """Returns the strategy with what the configuration has beside degrees."""
        return replace(
            strategy,
            offload=self.offload,
            quantized_weights=self.knobs.quantized_weights,
            quantized_gradients=self.knobs.quantized_gradients,
        )
