"""What is asked of the ranks that measure: the same value on all of them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

PATIENCE_S = 60.0
"""How long one message or product may take before its rank counts as hanging; the command's help says it too."""
START_S = 300.0
"""How long all ranks together may take to start."""


class Asked(BaseModel):
    """The options of one measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_nodes: PositiveInt | None = None
    ranks_per_node: PositiveInt | None = None
    levels: tuple[PositiveInt, ...] | None = None
    """Sizes of the levels, inner first; None finds them."""
    quick: bool = False
    journal: str | None = None
    """Path of the file that keeps what is measured until the profile is written."""
    fresh: bool = False
    """Whether to leave out what an earlier journal has."""
    patience_s: PositiveFloat = PATIENCE_S
    start_s: PositiveFloat = START_S
