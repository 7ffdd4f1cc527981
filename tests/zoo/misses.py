"""Why an entry's traced figures are not the real ones, for each entry where that is known to be so."""

from __future__ import annotations

MISSES: dict[str, str] = {}
