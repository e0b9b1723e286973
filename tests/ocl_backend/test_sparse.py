"""Sparse tensors: conversion, printing, products, gradients of embeddings, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn import functional

from tests.ocl_backend.cpu_twin import assert_same, ocl, place, refuse_alike

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")

DENSE = torch.tensor([[0.0, 1.5, 0.0, -2.0], [0.0] * 4, [3.0, 0.0, 4.0, 0.0]])
RIGHT = torch.arange(8.0).view(4, 2)


def twice(x: Tensor) -> Tensor:
    """A tensor of coordinates in which every place is named twice, and none in order."""
    coo = x.to_sparse()
    indices, values = coo.indices(), coo.values()
    return torch.sparse_coo_tensor(
        torch.cat([indices.flip(1), indices], 1), torch.cat([values.flip(0), values]), x.shape
    )


CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "there and back": lambda x, y: x.to_sparse().to_dense(),
    "by rows and back": lambda x, y: x.to_sparse_csr().to_dense(),
    "by columns": lambda x, y: x.to_sparse_csc().to_dense(),
    "in blocks": lambda x, y: x[:2].to_sparse_bsr((1, 2)).to_dense(),
    "coordinates to rows": lambda x, y: x.to_sparse().to_sparse_csr().crow_indices(),
    "rows to coordinates": lambda x, y: x.to_sparse_csr().to_sparse().indices(),
    "rows are dense": lambda x, y: x.to_sparse(1).values(),
    "coalesced": lambda x, y: twice(x).coalesce().indices(),
    "sums of one place": lambda x, y: twice(x).coalesce().values(),
    "product": lambda x, y: torch.sparse.mm(twice(x), y),
    "product by rows": lambda x, y: x.to_sparse_csr() @ y,
    "with a vector": lambda x, y: x.to_sparse() @ y[:, 0],
    "rows with a vector": lambda x, y: x.to_sparse_csr() @ y[:, 0],
    "addmm": lambda x, y: torch.sparse.addmm(y[:3], x.to_sparse(), y, beta=0.5, alpha=2.0),
    "transposed": lambda x, y: (x.to_sparse().t() @ x).contiguous(),
    "two sparse": lambda x, y: (x.to_sparse() - twice(x)).to_dense(),
    "bytes from integers": lambda x, y: (
        x.to(torch.int8).to_sparse() - x.abs().byte().to_sparse()
    ).to_dense(),
    "bytes from dense integers": lambda x, y: x.to(torch.int8) - x.abs().byte().to_sparse(),
    "rows before dense": lambda x, y: torch.add(x.to_sparse_csr(), x.double() + 1, alpha=3),
    "columns before dense": lambda x, y: x.to_sparse_csc() + (x - 2),
    "dense and sparse": lambda x, y: torch.add(x, twice(x), alpha=3),
    "scaled": lambda x, y: (x.to_sparse() * 2 / 3.5).abs().sqrt().to_dense(),
    "integers scaled": lambda x, y: (x.int().to_sparse() * 1.5).to_dense(),
    "times dense": lambda x, y: (x.to_sparse() * x).to_dense(),
    "sum": lambda x, y: torch.sparse.sum(x.to_sparse()),
    "masked": lambda x, y: (x + 1).sparse_mask(x.to_sparse()).values(),
    "norm": lambda x, y: x.to_sparse().norm(),
    "narrowed": lambda x, y: x.to_sparse().narrow_copy(1, 1, 2).to_dense(),
    "narrowed rows": lambda x, y: x.to_sparse(1).narrow_copy(1, 1, 2).to_dense(),
    "one row": lambda x, y: x.to_sparse()[2].to_dense(),
    "spread": lambda x, y: torch._sparse_broadcast_to(x[:1].to_sparse(), (2, 3, 4)).to_dense(),
    "twice spread": lambda x, y: torch._sparse_broadcast_to(twice(x), (2, 3, 4)).to_dense(),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CALLS)
def test_on_the_device_alone(device: Any, name: str) -> None:
    theirs = CALLS[name](DENSE, RIGHT)
    ocl.reset_fallbacks()
    ours = CALLS[name](DENSE.to(place(device)), RIGHT.to(place(device)))
    assert ocl.fallbacks() == {}
    assert_same(ours, theirs)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_moved_and_printed(device: Any, layout: Any) -> None:
    theirs = DENSE.to_sparse(layout=layout)
    ours = theirs.to(place(device))
    assert_same(ours.cpu().to_dense(), DENSE)
    there = f"device='ocl:{device.index}',"
    assert there in str(ours)
    assert "".join(str(ours).replace(there, "").split()) == "".join(str(theirs).split())


WRONG: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "fractions added to integers": lambda x, y: x.long().add_(x.to_sparse()),
    "fractions added to sparse integers": lambda x, y: x.long().to_sparse().add_(x.to_sparse()),
    "fractions subtracted": lambda x, y: x.long().sub_(x.to_sparse()),
    "fractions of a sum": lambda x, y: torch.add(x, x.to_sparse(), out=x.long()),
    "sizes of a sum": lambda x, y: x.to_sparse() + x.t().to_sparse(),
    "sizes of a sum by rows": lambda x, y: x.to_sparse_csr() + x.t().to_sparse_csr(),
    "sizes of a product": lambda x, y: torch.sparse.mm(x.to_sparse(), y[:3]),
    "sizes of a product by rows": lambda x, y: x.to_sparse_csr() @ y[:3],
    "dense added to sparse": lambda x, y: x.to_sparse() + x,
    "dense added to blocks": lambda x, y: x[:2].to_sparse_bsr((1, 2)) + x[:2],
    "a view of some columns": lambda x, y: x.to_sparse().narrow(1, 1, 2),
    "a view beyond the columns": lambda x, y: x.to_sparse().narrow(1, 3, 2),
    "a view of some rows": lambda x, y: x.to_sparse_csr().narrow(0, 0, 1),
    "a view that repeats": lambda x, y: x.to_sparse().broadcast_to(2, 3, 4),
    "a view that repeats, by rows": lambda x, y: x.to_sparse_csr().broadcast_to(2, 3, 4),
    "columns beyond": lambda x, y: x.to_sparse().narrow_copy(1, 3, 2),
    "a dimension beyond": lambda x, y: x.to_sparse().narrow_copy(10, 0, 1),
    "spread to fewer": lambda x, y: torch._sparse_broadcast_to(x.to_sparse(), (3, 5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_raises_the_cpus_error(device: Any, name: str) -> None:
    refuse_alike(device, WRONG[name], DENSE, RIGHT)


def test_formats_hold_what_torch_demands_of_them(device: Any) -> None:
    with torch.sparse.check_sparse_tensor_invariants():
        for make in ("to_sparse_csr", "to_sparse_csc"):
            assert_same(getattr(DENSE.to(place(device)), make)(), getattr(DENSE, make)())
        for make in ("to_sparse_bsr", "to_sparse_bsc"):
            ours, theirs = (getattr(x[:2], make)((2, 1)) for x in (DENSE.to(place(device)), DENSE))
            assert_same(ours, theirs)


@pytest.mark.parametrize("alpha", [1, 3])
def test_a_sum_with_nothing_may_divide_its_dimensions_otherwise(device: Any, alpha: int) -> None:
    nothing = torch.sparse_coo_tensor(size=DENSE.shape).to_sparse()
    rows = DENSE.to_sparse(1)
    for x, y in ((rows, nothing), (nothing, rows)):
        ours = torch.add(x.to(place(device)), y.to(place(device)), alpha=alpha)
        assert_same(ours.to_dense(), torch.add(x, y, alpha=alpha).to_dense())
    refuse_alike(device, torch.add, rows, DENSE.to_sparse(2))
    short = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.empty(2, 0), (3, 0))
    ours = torch.sparse_coo_tensor(size=(3, 0)).to(place(device)) + short.to(place(device))
    assert ours._nnz() == 2


@pytest.mark.parametrize("make", [torch.optim.SparseAdam, torch.optim.SGD])
def test_training_of_an_embedding(device: Any, make: Any) -> None:
    """A text may name a word twice."""
    found = []
    for where in ("cpu", place(device)):
        torch.manual_seed(0)
        layer = nn.Embedding(6, 3, sparse=True).to(where)
        optimizer = make(layer.parameters(), lr=0.1)
        for text in ([[1, 4, 1]], [[0, 4, 5]]):
            optimizer.zero_grad()
            layer(torch.tensor(text, device=where)).square().sum().backward()
            assert layer.weight.grad is not None and layer.weight.grad.is_sparse
            optimizer.step()
        found.append(layer.weight)
    assert_same(found[1], found[0])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 4])
def test_bags_of_an_embedding(device: Any, mode: str, padding: int | None) -> None:
    """A bag may be empty or name a word twice; torch refuses gradients of maxima in both places."""
    words, starts = torch.tensor([1, 4, 1, 5, 0, 5, 4]), torch.tensor([0, 3, 3, 6])
    learns = mode != "max"
    found = []
    ocl.reset_fallbacks()
    for where in ("cpu", place(device)):
        torch.manual_seed(0)
        layer = nn.EmbeddingBag(6, 3, mode=mode, sparse=learns, padding_idx=padding).to(where)
        weights = torch.rand(7).to(where).requires_grad_() if mode == "sum" else None
        bags = layer(words.to(where), starts.to(where), weights)
        bags.square().sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.is_sparse is learns
        grad = layer.weight.grad.to_dense() if learns else layer.weight.grad
        found.append((bags, grad) if weights is None else (bags, grad, weights.grad))
    assert_same(found[1], found[0])
    assert ocl.fallbacks() == {}


def test_sparse_bags_are_refused_as_on_the_cpu(device: Any) -> None:
    words, starts = torch.tensor([1, 0, 1]), torch.tensor([0, 2])

    def by_frequency(table: Tensor, words: Tensor, starts: Tensor) -> None:
        table = table.clone().requires_grad_()
        bags = functional.embedding_bag(words, table, starts, scale_grad_by_freq=True, sparse=True)
        bags.sum().backward()

    def maxima(table: Tensor, words: Tensor, starts: Tensor) -> None:
        functional.embedding_bag(words, table, starts, mode="max", sparse=True)

    refuse_alike(device, by_frequency, DENSE, words, starts)
    refuse_alike(device, maxima, DENSE, words, starts)


def test_gradient_of_a_sparse_product(device: Any) -> None:
    found = []
    for where in ("cpu", place(device)):
        x = DENSE.to(where).to_sparse().requires_grad_()
        y = RIGHT.clone().to(where).requires_grad_()
        torch.sparse.mm(x, y).square().sum().backward()
        assert x.grad is not None
        found.append((x.grad.to_dense(), y.grad))
    assert_same(found[1], found[0])


def test_sums_of_rows_are_written_to_rows_with_other_items(device: Any) -> None:
    x = torch.eye(3, device=place(device)).to_sparse_csr()
    y = torch.ones(3, 3, device=place(device)).triu().to_sparse_csr()
    for start in (torch.zeros(3, 3), torch.ones(3, 3)):
        out = start.to(place(device)).to_sparse_csr()
        assert torch.add(x, y, out=out) is out
        torch.testing.assert_close(out.to_dense().cpu(), torch.eye(3) + torch.ones(3, 3).triu())
    assert x.add_(y) is x
    torch.testing.assert_close(x, out)


def test_sums_have_positions_of_their_operands_dtype(device: Any) -> None:
    x = torch.eye(4).to_sparse_csr()
    narrow = torch.sparse_csr_tensor(x.crow_indices().int(), x.col_indices().int(), x.values())
    there = narrow.to(place(device))
    total = there + there
    assert {total.crow_indices().dtype, total.col_indices().dtype} == {torch.int32}
    torch.testing.assert_close(total.to_dense().cpu(), 2 * torch.eye(4))


@pytest.mark.filterwarnings("ignore:.* has no ocl kernel")
def test_what_has_no_kernel_runs_on_the_cpu(device: Any) -> None:
    ocl.reset_fallbacks()
    x = DENSE.to(place(device)).to_sparse()
    theirs = torch.sparse.softmax(DENSE.to_sparse(), 1).to_dense()
    assert_same(torch.sparse.softmax(x, 1).to_dense(), theirs)
    assert_same((x * x).to_dense(), DENSE * DENSE)
    assert set(ocl.fallbacks()) == {"aten::_sparse_softmax", "aten::mul.Tensor"}


@pytest.mark.filterwarnings("ignore:.* has no ocl kernel")
def test_rows_from_the_cpu_have_as_many_items_as_there(device: Any) -> None:
    x = torch.stack([DENSE[0], DENSE[1] + 1])
    y = torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0]])

    def calls(where: Any) -> Any:
        rows = x.to(where).to_sparse_csr().requires_grad_()
        product = rows * y.to(where)
        rows.log1p().to_dense().sum().backward()
        return product.to_dense(), rows.grad.to_dense()

    assert_same(calls(place(device)), calls("cpu"))


@pytest.mark.filterwarnings("ignore:.* has no ocl kernel")
def test_products_of_rows_may_have_unsorted_columns(device: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, 8), (8, 4))
    x, y = (torch.randn(size, generator=generator).relu() for size in sizes)
    theirs = x.to_sparse_csr() @ y.to_sparse_csr()
    with torch.sparse.check_sparse_tensor_invariants():
        ours = x.to(place(device)).to_sparse_csr() @ y.to(place(device)).to_sparse_csr()
    assert_same(ours.to_dense(), theirs.to_dense())


TURNED = (
    ("csr", "csc"),
    ("csc", "csr"),
    ("csr", "bsc"),
    ("csc", "bsr"),
    ("bsr", "bsc"),
    ("bsc", "bsr"),
)


@pytest.mark.filterwarnings("ignore:.* has no ocl kernel")
@pytest.mark.filterwarnings("ignore:.*executing on the CPU device")
@pytest.mark.parametrize("kinds", TURNED, ids="-".join)
def test_rows_become_columns_and_columns_rows(device: Any, kinds: tuple[str, str]) -> None:
    x = DENSE.to(place(device))
    for kind in kinds:
        x = getattr(x, f"to_sparse_{kind}")(*[(3, 2)] * kind.startswith("b"))
    y = DENSE.to(place(device)).to_sparse_csr().to_sparse(layout=torch.sparse_csc)
    assert (x.layout, y.layout) == (getattr(torch, f"sparse_{kinds[1]}"), torch.sparse_csc)
    assert x.device == place(device)
    assert torch.equal(x.to_dense().cpu(), DENSE)


def test_quantized_tensors_are_refused(device: Any) -> None:
    y = RIGHT.to(place(device))
    with pytest.raises(TypeError, match=r"quantized.*dequantize"):
        torch.quantize_per_tensor(y, 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match=r"quantized.*dequantize"):
        torch.quantize_per_tensor(RIGHT, 0.1, 0, torch.qint8).to(place(device))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_gradients_pass_rows_that_are_multiplied_by_a_number(device: Any) -> None:
    def slope(where: Any) -> Any:
        x = torch.eye(3, device=where).to_sparse_csr().requires_grad_()
        (x * 1).deg2rad().to_dense().sum().backward()
        return x.grad.to_dense().cpu()

    assert torch.equal(slope(place(device)), slope("cpu"))


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex32], ids=str)
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_products_of_two_whose_dtype_the_cpu_lacks(device: Any, layout: Any, dtype: Any) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(4, 5).mul(torch.rand(4, 5) > 0.5).to(dtype) for _ in range(2))
    ours = [one.to(place(device)).to_sparse(layout=layout) for one in (x, y)]
    product = ours[0] * ours[1]
    assert product.layout is layout
    assert product.dtype is dtype
    expected = x.to(torch.complex64) * y.to(torch.complex64)
    found = product.to_dense().cpu().to(torch.complex64)
    torch.testing.assert_close(found, expected, rtol=2**-11, atol=0)


@pytest.mark.parametrize("reduce", ["mean", "amax"])
def test_gradients_of_reduced_products(device: Any, reduce: str) -> None:
    """torch's kernel on the CPU reads positions that it only makes where a gradient is wanted."""
    torch.manual_seed(0)
    x, y = torch.randn(5, 6).mul(torch.rand(5, 6) > 0.4), torch.randn(6, 3)
    found = []
    for where in ("cpu", place(device)):
        rows = x.to(where).to_sparse_csr().requires_grad_()
        columns = y.to(where, copy=True).requires_grad_()
        out = torch.sparse.mm(rows, columns, reduce)
        out.square().sum().backward()
        assert rows.grad is not None
        found.append([out, rows.grad.to_dense(), columns.grad])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems_of_blocks(device: Any, upper: bool, dtype: Any) -> None:
    """torch's solver for the CPU is wrong for a diagonal of ones, and may crash for lower ones."""
    torch.manual_seed(0)
    whole = torch.randn(6, 6, dtype=dtype) + 4 * torch.eye(6)
    right = torch.randn(6, 2, dtype=dtype)
    blocks = whole.to_sparse_bsr((2, 2)).to(place(device))
    for transpose in (False, True):
        for ones in (False, True):
            how: dict[str, Any] = {"upper": upper, "transpose": transpose, "unitriangular": ones}
            wanted = torch.triangular_solve(right, whole, **how)[0]
            ours = torch.triangular_solve(right.to(place(device)), blocks, **how)
            assert_same(ours[0], wanted)
            assert ours[1].numel() == 0
            out = torch.empty(0, dtype=dtype, device=place(device)), ours[1]
            torch.triangular_solve(right.to(place(device)), blocks, **how, out=out)
            assert_same(out[0], wanted)
