"""The dynamic loss scale of fp16: halved when gradients overflow, doubled after many steps without."""

from __future__ import annotations

import math
from dataclasses import dataclass

WINDOW = 1000
"""Steps without an overflow before the scale grows; the configurations for DeepSpeed say the same."""
INITIAL = 2.0**16
LEAST = 1.0


@dataclass(slots=True)
class LossScale:
    """The scale of the next backward."""

    value: float = INITIAL
    num_good_steps: int = 0
    window: int = WINDOW
    least: float = LEAST

    def update(self, norm: float) -> bool:
        """Takes the norm of a step's gradients, the same on all ranks; returns whether they can be used."""
        if not math.isfinite(norm):
            self.value = max(self.value / 2, self.least)
            self.num_good_steps = 0
            return False
        self.num_good_steps += 1
        if self.num_good_steps % self.window == 0:
            self.value *= 2
        return True
