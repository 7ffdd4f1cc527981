"""The choice that torch makes for a recurrent layer on a CPU: oneDNN's fused kernel, one operator per layer.

It decides when gradients are complete, a layer's all at once, and what is saved for them. The rest of the step is
traced without oneDNN, whose operators save what the plain ones save.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from planner.trace.kernels.kernel_results import KernelResults
from planner.trace.kernels.packed_layers import packed_kernels_of_cpu
from planner.trace.kernels.packed_sequences import packed_sequence_kernels
from planner.trace.kernels.replaced_operators import replaced_operators


@contextmanager
def cpu_kernels() -> Iterator[list[str]]:
    """While on, fake tensors run and look as real ones do on a CPU; there is nothing to tell of these kernels."""
    kernels = {**packed_sequence_kernels(), **packed_kernels_of_cpu()}
    with fused_lstm(), replaced_operators(kernels, "AutogradCPU"), KernelResults("cpu"):
        yield []


@contextmanager
def fused_lstm() -> Iterator[None]:
    """While on, `nn.LSTM` runs by oneDNN even where it is off for the rest."""
    plain = torch._VF.lstm

    def fused(*arguments: Any) -> Any:
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(True)
        try:
            return plain(*arguments)
        finally:
            torch._C._set_mkldnn_enabled(before)

    with patch.object(torch._VF, "lstm", fused):
        yield
