"""Indices and values out of range: told at the next wait, or at the call; the device goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import Function
from torch.nn import functional

import ocl_backend  # noqa: F401  (registers the device)
from tests.ocl_backend.cpu_twin import place

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), x[:1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x[0, :1]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "gather": lambda x, i: x.gather(1, i.view(1, 1)),
    "scatter": lambda x, i: x.scatter(1, i.view(1, 1), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i.view(1, 1), x[:1]),
    "embedding": lambda x, i: functional.embedding(i, x),
    "nll_loss": lambda x, i: functional.nll_loss(x[:1], i),
    "cross_entropy": lambda x, i: functional.cross_entropy(x, i.expand(5), reduction="none"),
}

RECALLED = 6
"""Two like calls are noted, and those that follow are recalled."""

COMPOSED: dict[str, Callable[[Any, Any], Any]] = {
    "embedding_bag": lambda x, i: functional.embedding_bag(i, x, torch.zeros_like(i)),
    "one_hot": lambda x, i: functional.one_hot(i, 5),
}
"""Calls whose error is that of an operator they are made of, not the CPU's."""


@pytest.fixture
def synchronous() -> Iterator[None]:
    torch.ocl.set_sync_errors(True)
    yield
    torch.ocl.set_sync_errors(False)


@pytest.mark.usefixtures("synchronous")
@pytest.mark.parametrize("name", CALLS)
def test_the_call_raises_what_the_cpu_raises(device: Any, name: str) -> None:
    for wrong in (99, -99):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            CALLS[name](torch.ones(5, 4), torch.tensor([wrong]))
        with pytest.raises(expected.type) as raised:
            CALLS[name](
                torch.ones(5, 4, device=place(device)), torch.tensor([wrong], device=place(device))
            )
        assert str(raised.value) == str(expected.value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", [*CALLS, *COMPOSED])
def test_a_call_that_was_right_often_is_checked_nevertheless(
    device: Any, name: str, before: bool
) -> None:
    call = (CALLS | COMPOSED)[name]
    x = torch.ones(5, 4, device=place(device))
    right, wrong = (torch.tensor([index], device=place(device)) for index in (2, 99))
    torch.ocl.set_sync_errors(before)
    try:
        for _ in range(RECALLED):
            call(x, right)
        torch.ocl.set_sync_errors(True)
        with pytest.raises((IndexError, RuntimeError), match=r"99|out of range") as raised:
            call(x, wrong)
        assert not isinstance(raised.value, torch.AcceleratorError)
    finally:
        torch.ocl.set_sync_errors(False)
    torch.ocl.synchronize(device.index)


@pytest.mark.parametrize("wrong", [[2, -1], [-4, -1]])
def test_negative_integers_are_not_counted(device: Any, wrong: list[int]) -> None:
    right = torch.tensor([2, 1], device=place(device))
    for _ in range(RECALLED):
        assert torch.bincount(right).tolist() == [0, 1, 1]
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(torch.tensor(wrong, device=place(device)))
    torch.ocl.synchronize(device.index)


@pytest.mark.usefixtures("synchronous")
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_names_the_index_that_no_row_has(device: Any, mode: str) -> None:
    table = torch.ones(5, 4, device=place(device))
    for wrong in (-1, 7):
        text = torch.tensor([[wrong, 1]], device=place(device))
        with pytest.raises(RuntimeError, match=f"idx < num_embeddings but found idx to be {wrong}"):
            functional.embedding_bag(text, table, padding_idx=0, mode=mode)


@pytest.mark.usefixtures("synchronous")
def test_one_hot_and_nothing_to_choose_from(device: Any) -> None:
    index = torch.tensor([4], device=place(device))
    with pytest.raises(RuntimeError, match="index 4 is out of bounds"):
        functional.one_hot(index, 4)
    with pytest.raises(IndexError, match="index is out of bounds for dimension with size 0"):
        torch.ones(0, device=place(device))[index]


@pytest.mark.parametrize("wait", [lambda x: x.sum().item(), lambda x: x.cpu(), None])
def test_the_next_wait_raises_once_and_the_device_goes_on(device: Any, wait: Any) -> None:
    x = torch.arange(5.0, device=place(device))
    chosen = x[torch.tensor([2, -9], device=place(device))]
    with pytest.raises(torch.AcceleratorError, match=r"index: index -9 is out of .* with size 5"):
        wait(chosen) if wait else torch.ocl.synchronize(device.index)
    assert chosen.tolist() == [2.0, 0.0]  # the nearest item was taken
    assert x[torch.tensor([-5], device=place(device))].tolist() == [0.0]


def test_a_backward_pass_raises_and_does_not_abort(device: Any) -> None:
    class Wrong(Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad[torch.tensor([9])].expand(5)

    x = torch.ones(5, device=place(device), requires_grad=True)
    Wrong.apply(x).sum().backward()
    with pytest.raises(torch.AcceleratorError, match="index 9"):
        x.grad.tolist()
    torch.ocl.set_sync_errors(True)
    try:
        with pytest.raises(IndexError, match="index 9"):
            Wrong.apply(x).sum().backward()
    finally:
        torch.ocl.set_sync_errors(False)
    assert x.sum().item() == 5


def test_targets_that_are_ignored_are_no_fault(device: Any) -> None:
    x = torch.randn(4, 3, device=place(device))
    loss = functional.cross_entropy(x, torch.tensor([0, -100, 2, -100], device=x.device))
    assert loss.isfinite().item()


VALUES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "bernoulli": (torch.bernoulli, [0.5, 2.0]),
    "multinomial": (lambda x: torch.multinomial(x, 1), [1.0, -1.0]),
    "binary_cross_entropy": (
        lambda x: functional.binary_cross_entropy(x, torch.ones_like(x)), [0.5, 2.0],
    ),
    "binary_cross_entropy target": (
        lambda x: functional.binary_cross_entropy(torch.full_like(x, 0.5), x), [0.5, 2.0],
    ),
}  # fmt: skip
"""Calls, and items of which the last is refused."""


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("bad", [None, float("nan")])
def test_probabilities_out_of_range_are_refused(device: Any, name: str, bad: float | None) -> None:
    call, items = VALUES[name]
    wrong = torch.tensor(items if bad is None else [items[0], bad])
    right = torch.tensor(items[:1]).expand(2).to(place(device))
    for _ in range(RECALLED):
        call(right)
    torch.ocl.synchronize(device.index)
    call(wrong.to(place(device)))
    with pytest.raises(torch.AcceleratorError, match=name):
        torch.ocl.synchronize(device.index)
    with pytest.raises(RuntimeError) as expected:
        call(wrong)
    torch.ocl.set_sync_errors(True)
    try:
        call(right)
        with pytest.raises(RuntimeError) as raised:
            call(wrong.to(place(device)))
        assert str(raised.value)[:40] == str(expected.value)[:40]
    finally:
        torch.ocl.set_sync_errors(False)


@pytest.mark.parametrize("replacement", [False, True])
def test_a_distribution_of_zeros_is_refused(device: Any, replacement: bool) -> None:
    zeros = torch.zeros(2, 3)
    with pytest.raises(RuntimeError, match="sum of probabilities <= 0"):
        torch.multinomial(zeros, 1, replacement)
    torch.multinomial(zeros.to(place(device)), 1, replacement)
    with pytest.raises(torch.AcceleratorError, match="sum of probabilities <= 0"):
        torch.ocl.synchronize(device.index)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers_have_no_negative_powers(device: Any, dtype: Any) -> None:
    """The same plan serves other exponents."""
    x = torch.tensor([1, 2, 3], dtype=dtype, device=place(device))
    assert (x**2).tolist() == [1, 4, 9]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        x**-1
    with pytest.raises(RuntimeError, match="negative integer powers"):
        x.pow_(-2)
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("is_learned", [True, False])
def test_indices_without_a_bag(device: Any, mode: str, count: int, is_learned: bool) -> None:
    """torch's CPU kernel of maxima ends the process, and so is not asked what it raises."""
    where = place(device)
    table = torch.ones(4, 3, device=where, requires_grad=is_learned)
    indices, none = (torch.zeros(n, dtype=torch.int64, device=where) for n in (count, 0))
    weights = torch.ones(count, device=where, requires_grad=is_learned) if mode == "sum" else None
    bags = functional.embedding_bag(indices, table, none, mode=mode, per_sample_weights=weights)
    assert bags.shape == (0, 3)
    if is_learned:
        bags.sum().backward()
        assert table.grad.abs().sum().item() == 0
        assert weights is None or weights.grad.tolist() == [0] * count


@pytest.mark.parametrize("mode", ["sum", "max"])
@pytest.mark.parametrize("offsets", [[1, 2], [0, 6]])
def test_bags_that_do_not_begin_with_the_indices_or_end_behind_them(
    device: Any, offsets: list[int], mode: str
) -> None:
    where = place(device)
    table, starts = torch.ones(4, 3, device=where), torch.tensor(offsets, dtype=torch.int64)
    indices = torch.zeros(5, dtype=torch.int64, device=where)
    bags = functional.embedding_bag(indices, table, starts.to(where), mode=mode)
    with pytest.raises(torch.AcceleratorError, match=r"embedding_bag: offsets\[(0|-1)\]"):
        bags.cpu()
