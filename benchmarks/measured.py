"""Questions about one measured mode of one model, as `planner.verify` gave it and JSON keeps it."""

from __future__ import annotations

import math
from typing import Any

FLOP = ("forward_flop", "backward_flop")


def figure(found: Any, name: str) -> Any:
    """Returns the comparison of that name: traced, real and tolerance."""
    return next(each for each in found["comparisons"] if each["name"] == name)


def is_equal(found: Any, name: str) -> bool:
    """Whether traced and real are the same number."""
    one = figure(found, name)
    return bool(one["traced"] == one["real"])


def is_near(found: Any, name: str, tolerance: float) -> bool:
    """Whether the two differ by no more than a part of the real one."""
    one = figure(found, name)
    return bool(abs(one["traced"] - one["real"]) <= tolerance * abs(one["real"]))


def holds(found: Any, name: str) -> bool:
    """Whether they differ by no more than was promised."""
    return is_near(found, name, figure(found, name)["tolerance"])


def is_exact(found: Any) -> bool:
    """Whether parameters and FLOPs are equal, and bytes as near as promised."""
    is_counted = all(is_equal(found, name) for name in ("num_params", *FLOP))
    return is_counted and holds(found, "saved_bytes") and holds(found, "peak_bytes")


def is_as_promised(found: Any) -> bool:
    """Whether the graph gives the model's loss as well."""
    return is_exact(found) and loss(found) == "ok"


def loss(found: Any) -> str:
    """Returns "ok" where the replayed loss is the eager one, else how far it is, or why it cannot be told."""
    replayed, eager = found["loss_replayed"], found["loss_eager"]
    if replayed is None:
        return "–"
    if eager is None or math.isnan(eager):
        return "no number"
    is_same = abs(replayed - eager) <= found["loss_tolerance"] * max(abs(eager), 1e-12)
    return "ok" if is_same else f"{replayed / eager:.4f}"
