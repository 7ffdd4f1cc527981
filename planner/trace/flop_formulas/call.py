"""One call of an operator, as a formula reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Kind = Literal["matmul", "convolution", "attention", "recurrence", "scan", "fft", "other"]
"""What an operator is bound by: products run on matrix units, scans and transforms mostly do not."""

Call = dict[str, Any]
"""Operands by their names in the schema (those left out are absent), and "result"."""

Formula = Callable[[Call], int]
