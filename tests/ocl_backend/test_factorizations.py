"""LU and Cholesky factors of small matrices, and what is solved with them, beside the CPU."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.dispatch import accepted, errors
from ocl_backend.ops.linear.matrix_kernels import MOST_ROWS
from tests.ocl_backend.cpu_twin import place

SOLVED: dict[str, Callable[..., Any]] = {
    "det": lambda a, s, b: torch.linalg.det(a),
    "slogdet": lambda a, s, b: torch.linalg.slogdet(a),
    "inv": lambda a, s, b: torch.linalg.inv(a),
    "solve": lambda a, s, b: torch.linalg.solve(a, b),
    "solve from the right": lambda a, s, b: torch.linalg.solve(a, b.mT, left=False),
    "vector": lambda a, s, b: torch.linalg.solve(a, b[..., 0]),
    "lu": lambda a, s, b: torch.linalg.lu(a),
    "lu of more rows": lambda a, s, b: torch.linalg.lu(torch.cat([a, b], -1).mT),
    "lu_solve": lambda a, s, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b),
    "lu_solve, turned": lambda a, s, b: torch.linalg.lu_solve(
        *torch.linalg.lu_factor(a), b, adjoint=True
    ),
    "cholesky": lambda a, s, b: torch.linalg.cholesky(s),
    "upper cholesky": lambda a, s, b: torch.linalg.cholesky(s, upper=True),
    "cholesky_solve": lambda a, s, b: torch.cholesky_solve(b, torch.linalg.cholesky(s)),
    "cholesky_inverse": lambda a, s, b: torch.cholesky_inverse(
        torch.linalg.cholesky(s, upper=True), upper=True
    ),
    "lower triangle": lambda a, s, b: torch.linalg.solve_triangular(s.tril(), b, upper=False),
    "upper triangle from the right": lambda a, s, b: torch.linalg.solve_triangular(
        s.triu(), b.mT, upper=True, left=False
    ),
    "triangle of ones": lambda a, s, b: torch.linalg.solve_triangular(
        s / 99, b, upper=True, unitriangular=True
    ),
}


def given(random: Random, n: int) -> tuple[Any, Any, Any]:
    """Return matrices, positive definite ones, and right sides; the first lie in any order."""
    batch = random.choice([(), (3,), (2, 2)])
    a = torch.randn(*batch, n, n, dtype=torch.float64)
    a += 3 * n**0.5 * torch.eye(n, dtype=torch.float64)[torch.randperm(n)]
    if random.random() < 0.5:
        a = a.mT.contiguous().mT
    side = torch.randn(*batch, n, random.randint(1, 5), dtype=torch.float64)
    return a, a @ a.mT + torch.eye(n, dtype=torch.float64), side


@pytest.mark.parametrize("name", SOLVED)
def test_values_and_gradients_are_those_of_the_cpu(device: Any, name: str) -> None:
    random = Random(name)
    for n in (1, 2, 5, random.randint(6, MOST_ROWS["cpu"])):
        arguments = given(random, n)
        sides = []
        for where in ("cpu", place(device)):
            own = [x.detach().clone().to(where).requires_grad_() for x in arguments]
            out = SOLVED[name](*own)
            parts = [out] if isinstance(out, torch.Tensor) else [x for x in out if x.requires_grad]
            scaled = [part / part.detach().abs().max().clamp(min=1) for part in parts]
            sum((part.cos() * part).sum() for part in scaled).backward()
            grads = [x.grad for x in own if x.grad is not None]
            sides.append([x.detach().cpu() for x in (*parts, *grads)])
        for expected, found in zip(*sides, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_small_matrices_stay_on_the_device_and_large_ones_go_to_the_host(device: Any) -> None:
    torch.ocl.reset_fallbacks()
    torch.linalg.inv(torch.eye(4, device=place(device)))
    assert not torch.ocl.fallbacks()
    large = MOST_ROWS["gpu"] + 1
    with pytest.warns(UserWarning, match="CPU"):
        inverse = torch.linalg.inv(2 * torch.eye(large, device=place(device)))
    assert torch.equal(inverse.cpu(), torch.eye(large) / 2)
    assert torch.ocl.fallbacks() == {"aten::linalg_inv_ex": 1}


def test_what_is_singular_or_of_wrong_sizes_is_refused_as_on_the_cpu(device: Any) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda d: torch.linalg.inv(torch.ones(2, 3, 3, device=d)),
        lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
        lambda d: torch.linalg.solve(torch.zeros(2, 2, device=d), torch.ones(2, device=d)),
        lambda d: torch.linalg.solve(torch.eye(3, device=d), torch.ones(4, 2, device=d)),
        lambda d: torch.linalg.det(torch.ones(3, 4, device=d)),
        lambda d: torch.linalg.solve_triangular(
            torch.eye(3, device=d), torch.ones(2, 2, device=d), upper=True
        ),
    ]
    for call in calls:
        texts = []
        for where in ("cpu", place(device)):
            with pytest.raises(RuntimeError) as refused:
                call(where)
            texts.append((type(refused.value), str(refused.value)))
        assert texts[0] == texts[1]


def test_nothing_to_factor_gives_what_the_cpu_gives(device: Any) -> None:
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        a = torch.zeros(shape)
        assert torch.equal(torch.linalg.det(a.to(place(device))).cpu(), torch.linalg.det(a))
        assert torch.linalg.inv(a.to(place(device))).shape == a.shape


@pytest.mark.parametrize("batch", [(5, 1), (1, 5, 1), (1, 1)])
def test_a_batch_of_one_has_any_stride(device: Any, batch: tuple[int, ...]) -> None:
    """A dimension of one item is dense whatever its stride is, which leads to no next matrix."""
    a = torch.randn(5, 3, 3, dtype=torch.float64)[: max(batch)] + 4 * torch.eye(3)
    strides = (*(9 if size > 1 else 9999 for size in batch), 3, 1)
    a, side = a.as_strided((*batch, 3, 3), strides), torch.randn(*batch, 3, 2, dtype=torch.float64)
    there = a.to(place(device)).as_strided(a.shape, strides)
    ours = torch.linalg.solve_triangular(there, side.to(place(device)), upper=True)
    torch.testing.assert_close(ours.cpu(), torch.linalg.solve_triangular(a, side, upper=True))
    ours = torch.cholesky_solve(side.to(place(device)), there)
    torch.testing.assert_close(ours.cpu(), torch.cholesky_solve(side, a))


def test_a_batch_of_one_column_may_have_any_strides(device: Any) -> None:
    """The CPU, which is asked what it accepts, steps through a batch by its last stride."""
    a = torch.randn(5, 1, 3, 3, dtype=torch.float64) + 4 * torch.eye(3)
    b = torch.randn(5, 4, 3, 2, dtype=torch.float64)
    theirs = torch.linalg.solve(a, b)
    lu, pivots, there = (x.to(place(device)) for x in (*torch.linalg.lu_factor(a), b))
    lu = lu.as_strided(lu.shape, (9, 450, 1, 3))
    pivots = pivots.as_strided(pivots.shape, (3, 150, 1))
    accepted.ask(torch.ops.aten.linalg_lu_solve.default, (lu, pivots, there), {})
    found = torch.linalg.lu_solve(lu, pivots, there)
    torch.testing.assert_close(found.cpu(), theirs, rtol=1e-8, atol=1e-8)


def test_a_single_item_is_as_far_away_as_what_lies_within() -> None:
    x = torch.zeros(900).as_strided((5, 1, 3, 3, 1), (9, 77, 1, 3, 88))
    assert errors.with_plain_strides(x).stride() == (9, 9, 1, 3, 1)
    assert errors.with_plain_strides(x[..., 0]).stride() == (9, 9, 1, 3)
