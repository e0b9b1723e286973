"""Matrix products: every layout that is read in place, the ones that are copied, the epilogues."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import gelu, linear

from ocl_backend.ops.linear.factors import Matrix, layout
from tests.ocl_backend.cpu_twin import agree, assert_same, check, place


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4), (4, 1), Matrix(False, 4, 0)),
        ((3, 4), (10, 1), Matrix(False, 10, 0)),
        ((3, 4), (1, 3), Matrix(True, 3, 0)),
        ((1, 4), (9, 1), Matrix(False, 4, 0)),
        ((4, 1), (7, 5), Matrix(False, 7, 0)),
        ((2, 3, 4), (12, 4, 1), Matrix(False, 4, 12)),
        ((2, 3, 4), (0, 4, 1), Matrix(False, 4, 0)),
        ((3, 4), (0, 1), None),
        ((3, 4), (8, 2), None),
    ],
)
def test_strides_become_transposes_and_row_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: Matrix | None
) -> None:
    assert layout(shape, strides) == expected


LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "rows apart": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "columns apart": lambda x: torch.stack([x, x], 2)[:, :, 0],
    "later in its storage": lambda x: torch.cat([x, x])[x.shape[0] :],
}


@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
def test_every_layout_of_both_factors(device: Any, a_layout: str, b_layout: str) -> None:
    a, b = torch.randn(7, 5), torch.randn(5, 9)
    check(device, lambda a, b: LAYOUTS[a_layout](a) @ LAYOUTS[b_layout](b), a, b)


@pytest.mark.parametrize("rows", [2, 8])
def test_few_transposed_rows_meet_a_second_factor_that_lies_along_k(device: Any, rows: int) -> None:
    a, b = torch.randn(150, rows), torch.randn(9, 150)
    check(device, lambda a, b: a.t() @ b.t(), a, b)
    served = torch.ocl.explain(lambda: a.to(place(device)).t() @ b.to(place(device)).t()).rows
    assert [row.problem.split(":")[3] for row in served] == ["nt"]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 13), (17, 1, 5), (3, 4, 1), (33, 65, 17)])
def test_sizes_at_the_edges(device: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    check(device, torch.mm, torch.randn(m, k), torch.randn(k, n))


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_lies_around_a_factor_meets_no_result(
    device: Any, dtype: Any, turned: tuple[bool, bool]
) -> None:
    """Panels that are packed may read it."""

    def cut_out(rows: int, columns: int, is_turned: bool) -> Any:
        shape = (columns, rows) if is_turned else (rows, columns)
        around = torch.full((shape[0] + 40, shape[1] + 40), torch.nan, dtype=dtype)
        around[: shape[0], : shape[1]] = torch.rand(shape) / 20
        found = around.to(place(device))[: shape[0], : shape[1]]
        return found.t() if is_turned else found

    a, b = cut_out(85, 333, turned[0]), cut_out(333, 45, turned[1])
    expected = a.cpu().double() @ b.cpu().double()
    assert_same((a @ b).double(), expected, 2e-2 if dtype is torch.bfloat16 else 1e-5)


def test_halves_are_scaled_before_they_are_rounded(device: Any) -> None:
    a, bias = torch.full((1, 4, 8), 100.0).half(), torch.ones(4, 4).half()

    def scaled(a: Any, bias: Any) -> Any:
        at = a.mT
        return (
            torch.baddbmm(bias[None], a, at, alpha=0.01),
            torch.addbmm(bias, a, at, alpha=0.01),
            torch.addmm(bias, a[0], at[0], alpha=0.01, beta=0),
            torch.addmv(bias[0], a[0], a[0, 0], alpha=0.01, beta=3),
        )

    got = scaled(a.to(place(device)), bias.to(place(device)))
    for ours, theirs in zip(got, scaled(a, bias), strict=True):
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (2, 1), (1, 0.5), (0.5, 0)])
@pytest.mark.parametrize("bias", [(9,), (1, 9), (7, 1), (7, 9), ()])
def test_addmm_scales_and_broadcasts(
    device: Any, bias: tuple[int, ...], alpha: float, beta: float
) -> None:
    def addmm(bias: Any, a: Any, b: Any) -> Any:
        return torch.addmm(bias, a, b, alpha=alpha, beta=beta)

    check(device, addmm, torch.randn(bias), torch.randn(7, 5), torch.randn(5, 9))


def test_linear_and_its_gradients(device: Any) -> None:
    w, bias = torch.randn(11, 6), torch.randn(11)
    check(device, linear, torch.randn(4, 6), w, bias)
    check(device, linear, torch.randn(2, 3, 6), w, bias)
    check(device, linear, torch.randn(6), w, bias)


@pytest.mark.parametrize("rows", [1, 3])
def test_products_with_one_right_factor_are_one(device: Any, rows: int) -> None:
    """All rows lie evenly, so that the factor is read once; a cut of longer rows lies so, too."""
    a = torch.randn(6, rows, 7)[..., 1:6]
    b = torch.randn(5, 4).expand(6, 5, 4)
    ours = a.to(place(device)), b[0].to(place(device)).expand(6, 5, 4)
    report = torch.ocl.explain(torch.bmm, *ours)
    assert [row.problem.partition(":")[2].split(":")[0] for row in report.rows] == [
        f"{6 * rows}x4x5"
    ]
    assert torch.allclose(report.result.cpu(), torch.bmm(a, b), atol=1e-5)
    check(device, torch.matmul, a, b[0])
    uneven = torch.randn(6, 3, 5)[:, :2].to(place(device))  # rows are left out between matrices
    apart = torch.bmm(uneven, ours[1])
    assert torch.allclose(apart.cpu(), uneven.cpu() @ b[0], atol=1e-5)


def test_batches_shared_factors_and_broadcasting(device: Any) -> None:
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    check(device, torch.bmm, a, b)
    check(device, torch.matmul, a, b[0])
    check(device, torch.matmul, a[0], b)
    check(device, lambda a, b: torch.bmm(a, b.mT.contiguous().mT), a, b)
    check(device, torch.baddbmm, torch.randn(3, 1, 6), a, b)
    check(device, lambda a, b: torch.einsum("bij,bjk->ik", a, b), a, b)


def test_a_product_of_nothing_has_the_cpus_dtype(device: Any) -> None:
    bias, a, b = torch.full((2, 3, 4), 1.7).half(), torch.ones(2, 3, 0).half(), torch.ones(2, 0, 4)
    agree(device, torch.baddbmm, bias, a, b.long())


def test_vectors(device: Any) -> None:
    a, x = torch.randn(7, 5), torch.randn(5)
    check(device, torch.mv, a, x)
    check(device, torch.dot, x, torch.randn(5))
    check(device, lambda y, a, x: torch.addmv(y, a, x, alpha=2, beta=3), torch.randn(7), a, x)


def test_no_rows_and_no_terms(device: Any) -> None:
    check(device, torch.mm, torch.randn(0, 4), torch.randn(4, 3))
    check(device, torch.mm, torch.randn(3, 0), torch.randn(0, 2))
    check(device, torch.addmm, torch.randn(2), torch.randn(3, 0), torch.randn(0, 2))


def test_out_keeps_its_storage_and_may_be_an_input(device: Any) -> None:
    a, b, c = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4)
    out = c.to(place(device))
    storage = out.data_ptr()
    torch.addmm(out, a.to(place(device)), b.to(place(device)), out=out)
    assert out.data_ptr() == storage
    torch.testing.assert_close(out.cpu(), torch.addmm(c, a, b), rtol=1e-5, atol=1e-5)
    ours, theirs = a.to(place(device)), b.to(place(device))
    gaps = torch.zeros(4, 8, device=place(device))[:, ::2]
    for target in (gaps, torch.zeros(4, 4, device=place(device)).t(), ours):
        torch.mm(ours, theirs, out=target)
        torch.testing.assert_close(target.cpu(), a @ b, rtol=1e-5, atol=1e-5)


def test_activation_in_the_epilogue(device: Any) -> None:
    bias, a, b = (torch.randn(s).to(place(device)) for s in ((9,), (7, 5), (5, 9)))
    plain = torch.addmm(bias, a, b).cpu()
    got = torch._addmm_activation(bias, a, b).cpu()
    torch.testing.assert_close(got, plain.relu(), rtol=1e-5, atol=1e-5)
    got = torch._addmm_activation(bias, a, b, use_gelu=True).cpu()
    torch.testing.assert_close(got, gelu(plain), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-13),
        (torch.int32, 0.0), (torch.int64, 0.0),
    ],
    ids=str,
)  # fmt: skip
def test_dtypes(device: Any, dtype: Any, tolerance: float) -> None:
    if dtype is torch.float64 and "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")
    a, b = (torch.randn(7, 5) * 4).to(dtype), (torch.randn(5, 9) * 4).to(dtype)
    check(device, torch.mm, a, b, tolerance=tolerance)


def test_shapes_and_dtypes_that_do_not_fit_are_named(device: Any) -> None:
    a, b = torch.ones(2, 3, device=place(device)), torch.ones(4, 2, device=place(device))
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(2x3 and 4x2\)"):
        torch.mm(a, b)
    with pytest.raises(RuntimeError, match="same dtype, but got: float != double"):
        torch.mm(a, a.double().t())


def test_tf32_is_a_choice_and_off_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(9, 17, device="ocl"), torch.randn(17, 5, device="ocl")
    assert torch.ocl.matmul.allow_tf32 is False
    strict = torch.ocl.explain(torch.mm, a, b).rows[0].problem
    monkeypatch.setattr(torch.ocl.matmul, "allow_tf32", True)
    allowed = torch.ocl.explain(torch.mm, a, b)
    assert (strict.split(":")[2], allowed.rows[0].problem.split(":")[2]) == ("fp32", "tf32")
    assert torch.allclose(allowed.result.cpu(), a.cpu() @ b.cpu(), rtol=2e-3, atol=2e-3)
    half = torch.ocl.explain(torch.mm, a.half(), b.half()).rows
    assert half[-1].problem.split(":")[2] == "fp16"
