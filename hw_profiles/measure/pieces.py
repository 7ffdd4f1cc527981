"""What is measured, piece by piece: each is kept as soon as it is known, and taken over from an earlier attempt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hw_profiles.measure.journal import Journal
from hw_profiles.measure.ranks import Ranks

Say = Callable[[str, float | None], None]
"""Called with what is measured next and which part of all is done; with None, the text is a note to be kept."""


class Pieces:
    """The pieces known so far, the same on every rank."""

    def __init__(self, ranks: Ranks, journal: Journal | None, say: Say) -> None:
        """On the first rank, `journal` has what is known; the others are told by it."""
        self.known: dict[str, Any] = ranks.first(dict(journal.pieces) if journal else {})
        self.total_weight = 1.0
        self._ranks, self._journal, self._say = ranks, journal, say
        self._done_weight = 0.0

    def take(self, name: str, text: str, weight: float, measure: Callable[[], Any]) -> Any:
        """Returns the piece `name` as plain JSON values: the kept one, else what `measure` returns on all ranks.

        Args:
            name: of the piece in the journal.
            text: what is measured, for people; "" says nothing.
            weight: the seconds that it is likely to take, of `total_weight`.
            measure: called on all ranks at once; returns the same plain values on each.
        """
        if name not in self.known:
            if text:
                self._say(text, min(self._done_weight / self.total_weight, 1.0))
            self._ranks.roll.step(text)
            # By way of JSON, so that a piece from the journal and one measured now are the same.
            self.known[name] = json.loads(json.dumps(measure()))
            trouble = self._journal.add(name, self.known[name]) if self._journal is not None else ""
            if trouble:
                self._say(trouble, None)
        self._done_weight += weight
        return self.known[name]
