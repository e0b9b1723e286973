"""Indexing, concatenation, ranges, scans and sorting against torch's CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, check, place

torch.manual_seed(0)
X = torch.randn(6, 10, 8)
ROWS = torch.randint(-6, 6, (4, 3))
COLUMNS = torch.randint(0, 8, (3,))
CHOICE = torch.randn(6, 10) > 0
ALONG = torch.randint(0, 10, (6, 4, 8))

READS: dict[str, Any] = {
    "one index": lambda x, i, j, m, a: x[i],
    "middle": lambda x, i, j, m, a: x[:, j],
    "neighbours": lambda x, i, j, m, a: x[i, j],
    "apart": lambda x, i, j, m, a: x[j, :, j],
    "last two": lambda x, i, j, m, a: x[:, j, j],
    "mask": lambda x, i, j, m, a: x[m],
    "mask of items": lambda x, i, j, m, a: x[x > 0],
    "of a view": lambda x, i, j, m, a: x.transpose(0, 2)[:, ::2][j],
    "gather": lambda x, i, j, m, a: x.gather(1, a),
    "index_select": lambda x, i, j, m, a: x.index_select(2, j),
    "take": lambda x, i, j, m, a: x.take(i),
    "masked_select": lambda x, i, j, m, a: x.masked_select(m.unsqueeze(2)),
    "nonzero": lambda x, i, j, m, a: m.nonzero(),
    "where": lambda x, i, j, m, a: torch.where(x > 1),
}

WRITES: dict[str, Any] = {
    "put": lambda x, i, j, m, a: x.index_put((j.unique(),), x[0, 0, 0]),
    "accumulate": lambda x, i, j, m, a: x.index_put((i, j), x[:4, :3], accumulate=True),
    "scatter": lambda x, i, j, m, a: x.scatter(1, a[:, :1], x[:, :1]),
    "scatter number": lambda x, i, j, m, a: x.scatter(1, a, 3.0),
    "scatter_add": lambda x, i, j, m, a: x.scatter_add(1, a, x[:, :4]),
    "index_add": lambda x, i, j, m, a: x.index_add(2, j, x[:, :, :3], alpha=2),
    "index_copy": lambda x, i, j, m, a: x.index_copy(2, j.unique(), x[:, :, : len(j.unique())]),
    "index_fill": lambda x, i, j, m, a: x.index_fill(2, j, 5),
    "masked_fill": lambda x, i, j, m, a: x.masked_fill(m.unsqueeze(2), -1),
    "masked_scatter": lambda x, i, j, m, a: x.masked_scatter(m.unsqueeze(2), x * 2),
}

MOVES: dict[str, Any] = {
    "cat": lambda x: torch.cat([x, x * 2, x[:, :3]], 1),
    "cat of dtypes": lambda x: torch.cat([x.int(), x]),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((2, -3), (0, 1)),
    "roll whole turns": lambda x: x.roll(2 * len(x), 0).add_(1) + x,
    "roll all": lambda x: x.roll(5),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 3), value=1.5),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(3, dim=1),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.transpose(1, 2).triu(-1),
    "unfold": lambda x: x.unfold(1, 3, 2).contiguous(),
    "rot90": lambda x: x.rot90(),
    "diff": lambda x: x.diff(dim=1),
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_indexing(device: Any, name: str) -> None:
    function = {**READS, **WRITES}[name]
    agree(device, function, X, ROWS, COLUMNS, CHOICE, ALONG)


def test_positions_lie_as_on_the_cpu(device: Any) -> None:
    assert CHOICE.to(place(device)).nonzero().stride() == CHOICE.nonzero().stride()


@pytest.mark.parametrize("name", ["neighbours", "mask", "gather", "index_select", "scatter_add"])
def test_gradients_of_indexing(device: Any, name: str) -> None:
    function = {**READS, **WRITES}[name]
    check(device, function, X, ROWS, COLUMNS, CHOICE, ALONG)


@pytest.mark.parametrize("name", MOVES)
def test_moving_items(device: Any, name: str) -> None:
    agree(device, MOVES[name], X)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.int64, torch.float64], ids=str)
def test_items_that_meet_are_all_added(device: Any, dtype: Any) -> None:
    if dtype is torch.float64 and "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")
    index = torch.arange(1000) % 7
    ones = torch.ones(1000).to(dtype)
    agree(device, lambda x, i: x[:7].zero_().index_add_(0, i, torch.ones_like(i, dtype=x.dtype)),
          ones[:700] if dtype is torch.int8 else ones, index)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.bool], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_narrow_integers_that_meet_leave_their_neighbours(
    device: Any, dtype: Any, reduce: str
) -> None:
    x = torch.randint(-99, 99, (9, 11)).to(dtype)
    places = torch.randint(0, 7, (8, 40))
    values = torch.randint(-99, 99, (8, 40)).to(dtype)
    agree(device, lambda x, i, v: x.scatter_reduce(1, i, v, reduce), x, places, values)
    agree(device, lambda x, i, v: x[1:, 3:].scatter_reduce(1, i, v, reduce), x, places, values)


def test_adding_to_narrow_integers_takes_no_wider_copy(device: Any) -> None:
    x = torch.ones(1 << 24, dtype=torch.int8, device=place(device))
    at = torch.tensor([-2, 0, -2, 1], device=x.device)
    torch.ocl.reset_peak_memory_stats(x.device)
    before = torch.ocl.memory_allocated(x.device)
    x.index_put_((at,), at.to(torch.int8), accumulate=True)
    assert x[[-3, -2, -1, 0, 1, 2]].tolist() == [1, -3, 1, 1, 2, 1]
    assert torch.ocl.max_memory_allocated(x.device) - before < 1 << 20


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(device: Any, reduce: str, include_self: bool) -> None:
    agree(
        device,
        lambda x, a: x.scatter_reduce(1, a, x, reduce, include_self=include_self),
        X, ALONG, tolerance=1e-4,
    )  # fmt: skip


def test_a_mask_of_bytes_is_warned_of_as_on_the_cpu(device: Any) -> None:
    x, mask = torch.randn(3, 4), torch.tensor([1, 0, 1], dtype=torch.uint8)
    ours, our_mask = x.to(place(device)), mask.to(place(device))
    with pytest.warns(UserWarning, match=r"torch\.uint8 is now deprecated"):
        chosen = ours[our_mask]
    assert torch.equal(chosen.cpu(), x[[0, 2]])
    with pytest.warns(UserWarning, match=r"torch\.uint8 is now deprecated"):
        ours[our_mask] = torch.zeros(2, 4, device=ours.device)  # a number is refused: no bools
    assert ours.cpu()[[0, 2]].count_nonzero() == 0


def test_an_embedding_without_features_has_a_gradient(device: Any) -> None:
    check(device, torch.nn.functional.embedding, torch.tensor([2, 0]), torch.ones(3, 0))


def test_embedding_and_its_gradient(device: Any) -> None:
    table, words = torch.randn(20, 7), torch.randint(0, 20, (5, 6))
    check(
        device,
        lambda t, w: torch.nn.functional.embedding(w, t, padding_idx=3, scale_grad_by_freq=True),
        table,
        words,
    )


def test_ranges(device: Any) -> None:
    def ranges(x: Any) -> tuple[Any, ...]:
        where = x.device
        return (
            torch.arange(3, 17, 2, device=where),
            torch.arange(0, 1, 0.1, device=where),
            torch.arange(5, 0, -1, dtype=torch.float16, device=where),
            torch.linspace(0, 1, 7, device=where),
            torch.eye(4, 6, device=where),
            torch.full((3,), 2.5, device=where),
            torch.zeros(2, 2, dtype=torch.int8, device=where),
        )

    agree(device, ranges, X, tolerance=1e-6)
    with pytest.raises(RuntimeError, match="step"):
        torch.arange(0, 5, -1, device=place(device))


@pytest.mark.parametrize("size", [1, 100, 5000, 20_000])
def test_long_scans(device: Any, size: int) -> None:
    agree(device, lambda x: x.cumsum(0), torch.rand(size), tolerance=1e-4)
    agree(device, lambda x: (x > 0).cumsum(0), torch.randn(size))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scans(device: Any, dim: int) -> None:
    agree(device, lambda x: (x.cumsum(dim), x.cumprod(dim), x.logcumsumexp(dim)), X, tolerance=1e-4)
    agree(device, lambda x: (*x.cummax(dim), *x.cummin(dim)), X)
    check(device, lambda x: x.cumsum(dim), X, tolerance=1e-4)


def test_sums_of_exponentials_keep_what_is_not_finite(device: Any) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[-inf, -inf, 1, -inf, inf, inf], [1, nan, 2, inf, -inf, 0]])
    agree(device, lambda x: x.logcumsumexp(1), x)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_sorting(device: Any, dim: int, descending: bool) -> None:
    agree(device, lambda x: x.sort(dim, descending), X)
    agree(device, lambda x: x.topk(3, dim, largest=descending), X)
    agree(device, lambda x: x.kthvalue(2, dim), X)


@pytest.mark.parametrize("shape", [(20_000,), (5000,), (3, 33), (1, 16), (2, 0)], ids=str)
def test_long_and_short_rows(device: Any, shape: tuple[int, ...]) -> None:
    many = torch.randint(-50, 50, shape)
    for descending in (False, True):
        agree(device, lambda x, d=descending: x.sort(dim=-1, descending=d, stable=True), many)
    k = min(7, shape[-1])
    values, indices = many.to(place(device)).topk(k)
    assert torch.equal(values.cpu(), many.topk(k)[0])
    assert torch.equal(many.gather(-1, indices.cpu()), values.cpu())
    first = many.sort(dim=-1, descending=True, stable=True)[1][..., :k]
    assert torch.equal(indices.cpu(), first)  # of equal items the first


def test_ties_keep_their_order_and_nan_is_largest(device: Any) -> None:
    few = torch.randint(-3, 3, (5, 300), dtype=torch.int32)
    agree(device, lambda x: x.sort(dim=1, stable=True), few)
    agree(device, lambda x: x.sort(dim=1, stable=True, descending=True), few)
    special = torch.tensor([1.0, float("nan"), 3.0, -float("inf"), float("inf")])
    agree(device, lambda x: (*x.sort(), *x.sort(descending=True)), special)


def test_what_follows_from_sorting(device: Any) -> None:
    few = torch.randint(-3, 3, (5, 30))
    agree(device, lambda x: x.unique(return_inverse=True, return_counts=True), few)
    agree(device, lambda x: (x.median(), x.median(1)[0], x.quantile(0.3)), X)
    agree(device, lambda x: torch.searchsorted(x.sort()[0], x), X[0, 0])
    agree(device, lambda x: torch.bincount(x.flatten() + 3), few)


def test_indices_may_lie_on_the_cpu(device: Any) -> None:
    x = X.to(place(device))
    assert torch.equal(x[ROWS, 1].cpu(), X[ROWS, 1])
    assert torch.equal(x[CHOICE].cpu(), X[CHOICE])
    x[ROWS] = 1
    assert (x[ROWS.to(x.device)] == 1).all()


TO_PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_add": lambda x, i, v: x.index_add_(0, i, v),
    "index_copy": lambda x, i, v: x.index_copy_(0, i, v),
    "index_fill": lambda x, i, v: x.index_fill_(0, i, v[0]),
    "index_put": lambda x, i, v: x.index_put_((i,), v),
    "index_reduce": lambda x, i, v: x.index_reduce_(0, i, v, "prod"),
    "put": lambda x, i, v: x.put_(i, v),
    "scatter": lambda x, i, v: x.scatter_(0, i, v),
    "scatter_add": lambda x, i, v: x.scatter_add_(0, i, v),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce_(0, i, v, "sum"),
}


@pytest.mark.parametrize("name", TO_PLACES)
def test_places_and_values_in_the_memory_written_to_are_refused(device: Any, name: str) -> None:
    for where in ("cpu", place(device)):
        x = torch.arange(6, device=where)
        i = torch.tensor([2, 1, 0], device=where)
        for tensors in ((x, i, x[:3]), (x[:3], x[:3], i), (i, i, i.clone())):
            if name == "index_fill" and tensors[1] is i and tensors[0] is x:
                continue  # a value is read before
            with pytest.raises(RuntimeError, match="unsupported operation"):
                TO_PLACES[name](*tensors)


@pytest.mark.parametrize("name", ["index_put", "index_fill", "masked_fill"])
def test_expanded_tensors_are_written_to_with_a_warning(device: Any, name: str) -> None:
    for where in ("cpu", place(device)):
        x = torch.zeros(1, device=where).expand(6)
        i = torch.tensor([2, 1, 0], device=where)
        with pytest.warns(UserWarning, match=f"Use of {name}_ on expanded tensors is deprecated"):
            if name == "masked_fill":
                x.masked_fill_(torch.ones(6, dtype=torch.bool, device=where), 2.0)
            else:
                TO_PLACES[name](x, i, torch.full((3,), 2.0, device=where))
        assert x.tolist() == [2.0] * 6


def test_items_lie_in_memory_as_on_the_cpu(device: Any) -> None:
    """A batch in channels_last that is shuffled stays so: `nn.SyncBatchNorm` is tried with one."""
    images = torch.randn(4, 2, 5, 6).to(memory_format=torch.channels_last)
    order = torch.tensor([2, 0, 3, 1])
    table = torch.tensor([[0, 1, 3], [2, 2, 0]]).t()
    reads: list[Callable[[Any, Any, Any], Any]] = [
        lambda x, i, t: x[i],
        lambda x, i, t: x[:, :, i],
        lambda x, i, t: x[:, i % 2],
        lambda x, i, t: x[i, :, i],
        lambda x, i, t: x[i > 0],
        lambda x, i, t: x.transpose(1, 3)[i],
        lambda x, i, t: x[t],
        lambda x, i, t: x.contiguous()[:, :, t],
    ]
    there = [x.to(place(device)) for x in (images, order, table)]
    there[2] = there[2].t().contiguous().t()
    for number, take in enumerate(reads):
        wanted, ours = take(images, order, table), take(*there)
        assert ours.stride() == wanted.stride(), number
        assert torch.equal(ours.cpu(), wanted), number
