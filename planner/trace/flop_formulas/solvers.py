"""Factorizations, solves, Fourier transforms and distances.

Counts are those of the algorithms that LAPACK uses, leading terms with n^2 and less left out; iterations of eigenvalue
and singular value algorithms are counted as on average. A complex operation is four real ones, as each of its products.
Source: Blackford and Dongarra, LAPACK Working Note 41 (1999), appendix C; Golub and Van Loan, Matrix Computations
(4th ed., 2013), tables 5.1 (LU, Cholesky), sections 5.2 (QR), 8.3 and 8.6 (symmetric eigenvalues, SVD), 7.5 (QR
algorithm).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from planner.trace.flop_formulas.call import Call, Formula


def _of_matrix(operand: str, count: Callable[[Call, int, int], float]) -> Formula:
    """`count(call, m, n)` for one m x n matrix of a batch."""

    def formula(call: Call) -> int:
        matrix = call[operand]
        *batch, m, n = matrix.shape
        flop: float = math.prod(batch) * _weight(matrix) * count(call, m, n)
        return round(flop)

    return formula


def _weight(tensor: Any) -> int:
    return 4 if tensor.is_complex() else 1


def _solve(matrix: str, right: str, count: Callable[[int], float]) -> Formula:
    """`count(n)` for the factorization of the n x n matrix, and 2 n^2 for every right-hand side."""

    def formula(call: Call) -> int:
        n = call[matrix].shape[-1]
        systems = math.prod(call[matrix].shape[:-2])
        flop: float = _weight(call[matrix]) * (systems * count(n) + 2 * n * call[right].numel())
        return round(flop)

    return formula


def _triangular(matrix: str, right: str) -> Formula:
    """n^2 for every right-hand side."""
    return lambda call: int(_weight(call[matrix]) * call[matrix].shape[-1] * call[right].numel())


def _lu(_: Call, m: int, n: int) -> float:
    k = min(m, n)
    return m * n * k * 2 - (m + n) * k**2 + 2 / 3 * k**3


def _householder(_: Call, m: int, n: int) -> float:
    long, short = max(m, n), min(m, n)
    return 2 * short**2 * (long - short / 3)


def _householder_product(call: Call, m: int, n: int) -> float:
    k: int = call["tau"].shape[-1]
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 / 3 * k**3


def _qr(call: Call, m: int, n: int) -> float:
    """R by reflections; Q by applying k of them to m x k columns, or m x m of the complete one."""
    k, mode = min(m, n), call.get("mode", "reduced")
    columns = {"r": 0, "reduced": k, "complete": m}[mode]
    form = 4 * m * columns * k - 2 * (m + columns) * k**2 + 4 / 3 * k**3 if columns else 0
    return _householder(call, m, n) + form


def _svd(call: Call, m: int, n: int) -> float:
    long, short = max(m, n), min(m, n)
    if not call.get("compute_uv", True):
        return 4 * long * short**2 - 4 / 3 * short**3
    if call.get("full_matrices", False):
        return 4 * long**2 * short + 8 * long * short**2 + 9 * short**3
    return 14 * long * short**2 + 8 * short**3


def _pinv(call: Call, m: int, n: int) -> float:
    """By singular values, or eigenvalues when Hermitian, and a product of what they give."""
    factors = 9 * n**3 if call.get("hermitian", False) else _svd({}, m, n)
    return factors + 2 * m * n * min(m, n)


def _lstsq(call: Call) -> int:
    """By QR: its reflections, their product with the right-hand sides, and a triangular solve."""
    m, n = call["self"].shape[-2:]
    systems = math.prod(call["self"].shape[:-2])
    columns = call["b"].numel() // m
    work = systems * _householder(call, m, n) + columns * (4 * m * n - 2 * n**2 + n**2)
    flop: float = _weight(call["self"]) * work
    return round(flop)


def _ormqr(call: Call) -> int:
    """Each of k reflections touches every column twice with m elements: 4 m k n, less 2 k^2 n."""
    other, k = call["input3"], call["input2"].shape[-1]
    m = other.shape[-2] if call.get("left", True) else other.shape[-1]
    flop: float = _weight(other) * other.numel() / m * (4 * m * k - 2 * k**2)
    return round(flop)


def _direct_distances(rows: str, others: str) -> Formula:
    """Per pair and coordinate a difference, a power and a sum."""
    return lambda call: int(3 * _pairs(call[rows], call[others]) * call[rows].shape[-1])


def _pairs(rows: Any, others: Any) -> int:
    batch = max(math.prod(rows.shape[:-2]), math.prod(others.shape[:-2]))
    return int(batch * rows.shape[-2] * others.shape[-2])


def _euclidean(call: Call) -> int:
    """By a product of (rows, size + 2) x (size + 2, others): the squared norms stand beside the coordinates.

    Source: torch 2.13, aten/src/ATen/native/Distance.cpp, _euclidean_dist.
    """
    return int(2 * _pairs(call["x1"], call["x2"]) * (call["x1"].shape[-1] + 2))


def _fourier(call: Call) -> int:
    """5 n log2 n for n complex points of all transformed axes together, half of it where one side is real.

    Source: Frigo and Johnson, "The Design and Implementation of FFTW3", Proc. IEEE 93(2), 2005, section II.
    """
    source, result = call["self"], call["result"]
    # The real side is whole; the complex one of a real transform has about half of the last axis.
    whole = result if "last_dim_size" in call else source
    points = math.prod(whole.shape[axis] for axis in call["dim"])
    is_real = not (source.is_complex() and result.is_complex())
    flop = 5 * points * math.log2(points) if points > 1 else 0
    return round(whole.numel() / points * flop / (2 if is_real else 1)) if points else 0


FOURIER_TRANSFORMS: dict[str, Formula] = {f"aten::_fft_{kind}": _fourier for kind in ("c2c", "r2c", "c2r")}

SOLVERS: dict[str, Formula] = {
    "aten::linalg_cholesky_ex": _of_matrix("self", lambda _, n, __: n**3 / 3),
    "aten::cholesky": _of_matrix("self", lambda _, n, __: n**3 / 3),
    "aten::cholesky_inverse": _of_matrix("self", lambda _, n, __: 2 / 3 * n**3),
    "aten::cholesky_solve": _solve("input2", "self", lambda _: 0),
    "aten::_cholesky_solve_helper": _solve("A", "self", lambda _: 0),
    "aten::linalg_qr": _of_matrix("A", _qr),
    "aten::geqrf": _of_matrix("self", _householder),
    "aten::linalg_householder_product": _of_matrix("input", _householder_product),
    "aten::ormqr": _ormqr,
    "aten::_linalg_svd": _of_matrix("A", _svd),
    "aten::_linalg_eigh": _of_matrix("A", lambda call, n, _: 9 * n**3 if call.get("compute_v", True) else 4 / 3 * n**3),
    "aten::linalg_eig": _of_matrix("self", lambda _, n, __: 25 * n**3),
    "aten::_linalg_eigvals": _of_matrix("self", lambda _, n, __: 10 * n**3),
    "aten::linalg_eigvals": _of_matrix("self", lambda _, n, __: 10 * n**3),
    "aten::linalg_lu": _of_matrix("A", _lu),
    "aten::linalg_lu_factor_ex": _of_matrix("A", _lu),
    "aten::_linalg_det": _of_matrix("A", _lu),
    "aten::_linalg_slogdet": _of_matrix("A", _lu),
    "aten::linalg_inv_ex": _of_matrix("A", lambda _, n, __: 2 * n**3),
    "aten::_linalg_solve_ex": _solve("A", "B", lambda n: 2 / 3 * n**3),
    "aten::linalg_lu_solve": _solve("LU", "B", lambda _: 0),
    "aten::linalg_ldl_factor_ex": _of_matrix("self", lambda _, n, __: n**3 / 3),
    "aten::linalg_ldl_solve": _solve("LD", "B", lambda _: 0),
    "aten::linalg_solve_triangular": _triangular("self", "B"),
    "aten::triangular_solve": _triangular("A", "self"),
    "aten::linalg_pinv": _of_matrix("self", _pinv),
    "aten::linalg_lstsq": _lstsq,
    # By a polynomial of degree 18 in 5 products; how often it is squared depends on values.
    # Source: torch 2.13, aten/src/ATen/native/LinearAlgebra.cpp, compute_T18.
    "aten::linalg_matrix_exp": _of_matrix("self", lambda _, n, __: 5 * 2 * n**3),
    "aten::_euclidean_dist": _euclidean,
    "aten::_cdist_forward": _direct_distances("x1", "x2"),
    "aten::_cdist_backward": _direct_distances("x1", "x2"),
    "aten::_pdist_forward": _direct_distances("self", "self"),
    "aten::_pdist_backward": _direct_distances("self", "self"),
}
