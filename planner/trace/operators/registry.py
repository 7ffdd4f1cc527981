"""All names that are replaced while a model is traced for CUDA, by the package that they belong to."""

from __future__ import annotations

from planner.trace.operators import (
    causal_convolution,
    flash_functions,
    mamba_inner,
    padding,
    selective_scan,
)
from planner.trace.operators.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    *flash_functions.ENTRIES,
    *padding.ENTRIES,
    *causal_convolution.ENTRIES,
    *selective_scan.ENTRIES,
    *mamba_inner.ENTRIES,
)

VERSIONS = {
    "causal_conv1d": "1.6.1",
    "flash_attn": "2.8.3",
    "mamba_ssm": "2.3.2",
}
"""Of each package, the version whose source was read."""


def by_package() -> dict[str, tuple[Entry, ...]]:
    """Returns the entries of each package, in the order of `VERSIONS`."""
    return {package: tuple(entry for entry in ENTRIES if entry.package == package) for package in VERSIONS}
