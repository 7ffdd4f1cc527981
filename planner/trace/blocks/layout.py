"""Which blocks a model has, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from costmodels.workload import Block


class Repetition(NamedTuple):
    """Blocks that follow one another in one list of the model."""

    owner: str
    """The ModuleList or Sequential, or the module that has numbered children."""
    is_list: bool
    members: tuple[str, ...]
    """The blocks, in the order of the list."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The blocks, in order of first execution, and where each module belongs."""

    blocks: tuple[Block, ...]
    block_of: dict[str, int]
    """Index of the block of every module of the model."""
    repetitions: tuple[Repetition, ...]
