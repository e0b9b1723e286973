"""Linear algebra of small matrices by LU and Cholesky factors; LAPACK on the host has larger ones.

Factors of a matrix A in rows are those of its transpose, as torch's formulas of gradients expect of
`det` and `slogdet`: a copy of A's rows is then what the kernel reads by columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels.dimensions import broadcast_shapes
from ocl_backend.ops.linear.matrix_kernels import (
    Triangle,
    by_columns,
    check_served,
    factor,
    solve,
)  # fmt: skip

LOWER, UPPER, UNIT_LOWER = (False, False, False), (True, False, False), (False, True, False)
"""Triangles that are read as they lie."""
TURNED: dict[Triangle, Triangle] = {
    LOWER: (True, False, True), UPPER: (False, False, True), UNIT_LOWER: (True, True, True),
}  # fmt: skip
"""The same, read across: the transpose of a lower triangle is an upper one."""


def lu_factor_ex(
    a: Tensor, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return LU [.., m, n], what rows were exchanged with, from 1, and which pivot is 0, from 1."""
    check_served(a)
    if not pivot:
        raise ValueError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    lu = by_columns(a)
    batch = a.shape[:-2]
    pivots = a.new_empty((*batch, min(a.shape[-2:])), dtype=torch.int32)
    info = a.new_empty(batch, dtype=torch.int32)
    factor("lu", lu, pivots, info)
    return lu, pivots, _checked(info, "linalg.lu_factor_ex", a, check_errors)


def _checked(info: Tensor, name: str, a: Tensor, check_errors: bool) -> Tensor:
    """Return `info`, looked at where the caller asks for that: it waits for the device."""
    if check_errors:
        torch._linalg_check_errors(info, name, is_matrix=a.dim() == 2)
    return info


def _square(a: Tensor) -> Tensor:
    if a.dim() < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{[*a.shape]} are no square matrices")
    return a


def _factored(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the factors of A, or of its transpose if A lies in rows."""
    return lu_factor_ex(_square(a).mT if a.is_contiguous() else _square(a))


def _sign(pivots: Tensor, like: Tensor) -> Tensor:
    """Return 1 or -1: whether the number of exchanges is even."""
    own = torch.arange(1, pivots.shape[-1] + 1, dtype=torch.int32, device=pivots.device)
    odd = (pivots != own).sum(-1) & 1
    return (1 - 2 * odd).to(like.dtype)


def det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return determinants [..] of a [.., n, n], and the factors that gradients need."""
    lu, pivots, _ = _factored(a)
    return lu.diagonal(0, -2, -1).prod(-1) * _sign(pivots, a), lu, pivots


def slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return signs and logarithms of determinants' sizes [..], and the factors."""
    lu, pivots, _ = _factored(a)
    diagonal = lu.diagonal(0, -2, -1)
    sign = diagonal.sign().prod(-1) * _sign(pivots, a)
    return sign, diagonal.abs().log().sum(-1), lu, pivots


def lu_solve(
    lu: Tensor, pivots: Tensor, b: Tensor, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Return x of A x = b, or x A = b unless `left`, or of A's transpose if `adjoint`.

    Args:
        lu: [.., n, n] as `lu_factor_ex` returns them.
        pivots: [.., n], too.
        b: [.., n, columns], or [.., columns, n] unless `left`.
        left: on which side of x A is.
        adjoint: whether A is turned.
    """
    check_served(_square(lu), b)
    if b.shape[-2 if left else -1] != lu.shape[-1]:
        raise ValueError(f"systems of {[*lu.shape]} have no right sides {[*b.shape]}")
    if pivots.shape != lu.shape[:-1] or pivots.dtype is not torch.int32:
        raise ValueError(f"pivots of {pivots.dtype} {[*pivots.shape]} for {[*lu.shape]}")
    batch = broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    x = by_columns(b, (*batch, *b.shape[-2:]))
    _solve_lu(lu, pivots, x if left else x.mT, adjoint if left else not adjoint)
    return x


def _solve_lu(lu: Tensor, pivots: Tensor, x: Tensor, adjoint: bool) -> None:
    """Replace right sides x by what A or its transpose makes them of; factors are broadcast."""
    batch = x.shape[:-2]
    triangle, exchanged = _dense(lu, batch), pivots.expand(*batch, pivots.shape[-1]).contiguous()
    if adjoint:
        solve(triangle, x, (TURNED[UPPER], TURNED[UNIT_LOWER]), exchanged, "after")
    else:
        solve(triangle, x, (UNIT_LOWER, UPPER), exchanged, "before")


def _dense(matrices: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Return the matrices of a batch, copied where no single stride leads from one to the next."""
    if matrices.shape[:-2] == batch and (len(batch) < 2 or _is_dense(matrices)):
        return matrices
    return by_columns(matrices, (*batch, *matrices.shape[-2:]))


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or x.mT.is_contiguous()


def solve_ex(
    a: Tensor, b: Tensor, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x of A x = b, or x A = b unless `left`, the factors, and which pivot is 0.

    Args:
        a: [.., n, n].
        b: [.., n, columns], [n], or [.., n] with the batch of A; turned unless `left`.
        left: on which side of x A is.
        check_errors: raise for what is singular.
    """
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    if is_vector and not left:
        raise ValueError("vectors are solved with A on the left")
    turned = a.is_contiguous() and _solving_turns()
    lu, pivots, info = lu_factor_ex(_square(a).mT if turned else _square(a))
    _checked(info, "torch.linalg.solve_ex", a, check_errors)
    sides = b.unsqueeze(-1) if is_vector else b
    x = lu_solve(lu, pivots, sides, left=left, adjoint=turned)
    return x.squeeze(-1) if is_vector else x, lu, pivots, info


@cache
def _solving_turns() -> bool:
    """Say whether this version of torch expects of `solve` the factors of a transpose, too."""
    asked = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    return bool(torch.ops.aten._linalg_solve_ex(asked, asked)[1][0, 0] == 2)


def inv_ex(a: Tensor, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return the inverses of a [.., n, n], and which pivot is 0, from 1."""
    lu, pivots, info = lu_factor_ex(_square(a))
    _checked(info, "linalg.inv_ex", a, check_errors)
    inverse = by_columns(_identity(a), tuple(a.shape))
    _solve_lu(lu, pivots, inverse, adjoint=False)
    return inverse, info


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def cholesky_ex(
    a: Tensor, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Return triangles L with L L^T = A, or its transpose, and which square is not positive."""
    check_served(_square(a))
    found = by_columns(a.mT if upper else a)
    info = a.new_empty(a.shape[:-2], dtype=torch.int32)
    factor("cholesky", found, info, info)
    _checked(info, "linalg.cholesky_ex", a, check_errors)
    return found.mT if upper else found, info


def cholesky(a: Tensor, upper: bool = False) -> Tensor:
    """Return as `cholesky_ex`; raises where A is not positive definite."""
    found, info = cholesky_ex(a, upper)
    _checked(info, "cholesky", a, True)
    return found


def cholesky_solve(b: Tensor, factors: Tensor, upper: bool) -> Tensor:
    """Return x of A x = b with A = L L^T; b [.., n, columns] and L [.., n, n] of one batch."""
    check_served(_square(factors), b)
    x = by_columns(b)
    lower = _dense(factors, b.shape[:-2])
    solve(lower.mT if upper else lower, x, (LOWER, TURNED[LOWER]))
    return x


def cholesky_inverse(factors: Tensor, upper: bool = False) -> Tensor:
    """Return the inverse of A = L L^T, of L [.., n, n]."""
    check_served(_square(factors))
    return cholesky_solve(_identity(factors).expand(factors.shape), factors, upper)


def solve_triangular(
    a: Tensor, b: Tensor, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return x of A x = b, or x A = b unless `left`, of triangles A.

    Args:
        a: [.., n, n], of which one triangle is read.
        b: [.., n, columns], or [.., columns, n] unless `left`.
        upper: which triangle.
        left: on which side of x A is.
        unitriangular: whether its diagonal counts as ones.
    """
    check_served(_square(a), b)
    if b.dim() < 2 or b.shape[-2 if left else -1] != a.shape[-1]:
        raise ValueError(f"triangles {[*a.shape]} have no right sides {[*b.shape]}")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = by_columns(b, (*batch, *b.shape[-2:]))
    triangle = _dense(a, batch)
    step = (upper if left else not upper, unitriangular, False)
    solve(triangle if left else triangle.mT, x if left else x.mT, (step,))
    return x


def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Return as `solve_triangular`, of A's transpose if asked for, and a copy of A."""
    own = a.mT if transpose else a
    x = solve_triangular(own, b, upper != transpose, unitriangular=unitriangular)
    return x, by_columns(a, (*x.shape[:-2], *a.shape[-2:]))


def lu(a: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return P [.., m, m], L and U of A [.., m, n] = P L U."""
    factors, pivots, _ = lu_factor_ex(a, pivot)
    return lu_unpack(factors, pivots)


def lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, L and U of what `lu_factor_ex` returns; what is not asked for is empty."""
    check_served(factors)
    rows, columns = factors.shape[-2:]
    count = min(rows, columns)
    none = factors.new_empty(0)
    lower, upper, exchanged = none, none, none
    if unpack_data:
        lower = factors[..., :count].tril(-1)
        lower.diagonal(0, -2, -1).fill_(1)
        upper = factors[..., :count, :].triu()
    if unpack_pivots:
        exchanged = _permutations(pivots, factors, rows)
    return exchanged, lower, upper


def _permutations(pivots: Tensor, like: Tensor, rows: int) -> Tensor:
    """Return P [.., rows, rows]: identities whose columns are exchanged as rows of A were."""
    if pivots.dtype is not torch.int32 or pivots.shape[-1] > rows:
        raise ValueError(f"pivots of {pivots.dtype} {[*pivots.shape]} for {rows} rows")
    batch = pivots.shape[:-1]
    rest = torch.arange(
        pivots.shape[-1] + 1, rows + 1, dtype=torch.int32, device=pivots.device
    ).expand(*batch, rows - pivots.shape[-1])
    whole = torch.cat([pivots, rest], -1).contiguous()
    one = torch.eye(rows, dtype=like.dtype, device=like.device)
    made = by_columns(one, (*batch, rows, rows))
    solve(made, made, (), whole, "before")
    return made.mT


OPERATORS: dict[str, Callable[..., Any]] = {
    "_linalg_det": det,
    "_linalg_det.result": into(det, "result", "LU", "pivots"),
    "_linalg_slogdet": slogdet,
    "_linalg_slogdet.sign": into(slogdet, "sign", "logabsdet", "LU", "pivots"),
    "linalg_lu_factor_ex": lu_factor_ex,
    "linalg_lu_factor_ex.out": into(lu_factor_ex, "LU", "pivots", "info"),
    "linalg_lu_solve": lu_solve,
    "linalg_lu_solve.out": into(lu_solve),
    "linalg_lu": lu,
    "linalg_lu.out": into(lu, "P", "L", "U"),
    "lu_unpack": lu_unpack,
    "lu_unpack.out": into(lu_unpack, "P", "L", "U"),
    "_linalg_solve_ex": solve_ex,
    "_linalg_solve_ex.result": into(solve_ex, "result", "LU", "pivots", "info"),
    "linalg_inv_ex": inv_ex,
    "linalg_inv_ex.inverse": into(inv_ex, "inverse", "info"),
    "linalg_cholesky_ex": cholesky_ex,
    "linalg_cholesky_ex.L": into(cholesky_ex, "L", "info"),
    "cholesky": cholesky,
    "cholesky.out": into(cholesky),
    "_cholesky_solve_helper": cholesky_solve,
    "cholesky_inverse": cholesky_inverse,
    "cholesky_inverse.out": into(cholesky_inverse),
    "linalg_solve_triangular": solve_triangular,
    "linalg_solve_triangular.out": into(solve_triangular),
    "triangular_solve": triangular_solve,
    "triangular_solve.X": into(triangular_solve, "X", "M"),
}
"""Implementations by aten name."""
