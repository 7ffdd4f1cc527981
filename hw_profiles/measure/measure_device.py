"""Measures what ranks compute and copy, a piece after the other. Runs on every rank."""

from __future__ import annotations

from functools import partial
from typing import Any

from hw_profiles.measure.effort import seconds_per_device_piece
from hw_profiles.measure.pieces import Pieces
from hw_profiles.measure.ranks import Ranks
from hw_profiles.measure.time_device import (
    attention_flop_per_s,
    link_bytes_per_s,
    matmul_flop_per_s,
    memory_bytes_per_s,
    operator_launch_s,
    precisions,
)
from hw_profiles.measure.time_overlap import overlap


def measure_device(ranks: Ranks, pieces: Pieces, quick: bool) -> dict[str, Any]:
    """Returns the fields of a measurement that are about the device and its host link."""
    each_s = seconds_per_device_piece(quick)
    products: dict[str, float] = {}
    attention: dict[str, float] = {}
    # Those that all ranks have, where devices are mixed.
    each_rank = ranks.gathered(precisions(ranks.device))
    for precision in (own for own in each_rank[0] if all(own in others for others in each_rank)):
        products[precision] = pieces.take(
            f"matmul {precision}",
            f"matrix products in {precision}",
            each_s,
            partial(matmul_flop_per_s, ranks, precision, quick),
        )
        attention[precision] = pieces.take(
            f"attention {precision}",
            f"attention in {precision}",
            each_s,
            partial(attention_flop_per_s, ranks, precision, quick),
        )
    copied = pieces.take("memory bandwidth", "memory bandwidth", each_s, lambda: memory_bytes_per_s(ranks, quick))
    if ranks.device.type == "cuda":
        linked = pieces.take("host link", "host links, all at once", each_s, lambda: link_bytes_per_s(ranks))
    else:
        # A rank on the host's own cores gets what lies there by a copy, of which one direction counts.
        linked = copied / 2
    launch_s = pieces.take("operators", "starts of operators", each_s, lambda: operator_launch_s(ranks, quick))
    # Accelerators have copy engines, and streams of their own for messages.
    beside = 1.0
    if ranks.device.type == "cpu":
        beside = pieces.take("overlap", "messages beside compute", each_s, lambda: overlap(ranks, quick))
    return {
        "overlap": beside,
        "matmul_flop_per_s": products,
        "attention_flop_per_s": attention,
        "memory_bytes_per_s": copied,
        "link_bytes_per_s": linked,
        "operator_launch_s": launch_s,
    }
