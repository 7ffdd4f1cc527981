"""Floating-point operations of torch's operators, from the shapes of their operands; an operation is one + or one x.

products      matrix products, dense, grouped, scaled, quantized, sparse
convolutions  direct and transposed, forward and backward
attention     all fused kernels, with sequences of one length or packed
recurrences   whole recurrent layers
solvers       factorizations, solves, Fourier transforms, distances

Each formula gets a `Call`: the operands by their names in the operator's schema, and the result as "result".
"""

from __future__ import annotations

from planner.trace.flop_formulas.attention import ATTENTION
from planner.trace.flop_formulas.call import Call, Formula, Kind
from planner.trace.flop_formulas.convolutions import CONVOLUTIONS
from planner.trace.flop_formulas.products import PRODUCTS
from planner.trace.flop_formulas.recurrences import RECURRENCES
from planner.trace.flop_formulas.solvers import FOURIER_TRANSFORMS, SOLVERS

_TABLES: tuple[tuple[Kind, dict[str, Formula]], ...] = (
    ("matmul", PRODUCTS),
    ("convolution", CONVOLUTIONS),
    ("attention", ATTENTION),
    ("recurrence", RECURRENCES),
    ("fft", FOURIER_TRANSFORMS),
    ("other", SOLVERS),
)

FORMULAS: dict[str, tuple[Kind, Formula]] = {
    name: (kind, formula) for kind, table in _TABLES for name, formula in table.items()
}
"""By the operator's name with its namespace, without overload and without the underscore of in-place ones."""

__all__ = ["FORMULAS", "Call", "Formula", "Kind"]
