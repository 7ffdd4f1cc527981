"""All names that are replaced while a model is traced for CUDA, by the package that they belong to."""

from __future__ import annotations

from planner.trace.operators import (
    causal_convolution,
    chunk_scan,
    cross_entropy,
    delta_rule,
    flash_functions,
    fused_elementwise,
    fused_norms,
    liger_losses,
    mamba2_inner,
    mamba_inner,
    mamba_modules,
    memory_efficient,
    padding,
    selective_scan,
)
from planner.trace.operators.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    *flash_functions.ENTRIES,
    *padding.ENTRIES,
    *cross_entropy.ENTRIES,
    *causal_convolution.ENTRIES,
    *selective_scan.ENTRIES,
    *mamba_inner.ENTRIES,
    *chunk_scan.ENTRIES,
    *mamba2_inner.ENTRIES,
    *mamba_modules.ENTRIES,
    *delta_rule.ENTRIES,
    *memory_efficient.ENTRIES,
    *liger_losses.ENTRIES,
    *fused_norms.ENTRIES,
    *fused_elementwise.ENTRIES,
)

VERSIONS = {
    "apex": "25.09",
    "causal_conv1d": "1.6.1",
    "fla": "0.5.2",
    "flash_attn": "2.8.3",
    "liger_kernel": "0.8.2",
    "mamba_ssm": "2.3.2",
    "xformers": "0.0.35",
}
"""Of each package, the version whose source was read."""


def by_package() -> dict[str, tuple[Entry, ...]]:
    """Returns the entries of each package, in the order of `VERSIONS`."""
    return {package: tuple(entry for entry in ENTRIES if entry.package == package) for package in VERSIONS}
