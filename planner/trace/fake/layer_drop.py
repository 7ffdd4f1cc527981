"""Switches LayerDrop off: a step that leaves layers out at random costs another amount each time.

Source: LayerDrop, arXiv 1909.11556. transformers 5.24 names it `layerdrop`, `encoder_layerdrop` or `decoder_layerdrop`.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def switch_off_layer_drop(module: nn.Module) -> tuple[str, ...]:
    """Makes a model run all of its layers, and returns a note for people where it did not before."""
    greatest = 0.0
    for child in module.modules():
        for owner in (child, getattr(child, "config", None)):
            for name, value in _rates(owner):
                greatest = max(greatest, value)
                setattr(owner, name, 0.0)
    if not greatest:
        return ()
    return (
        f"LayerDrop of {greatest:g} is off in the trace, which is of the step in which every layer runs; training "
        "keeps it, so that its steps take less",
    )


def _rates(owner: Any) -> list[tuple[str, float]]:
    values = getattr(owner, "__dict__", {})
    return [
        (name, float(value))
        for name, value in values.items()
        if name.endswith("layerdrop") and isinstance(value, float | int) and value > 0
    ]
