"""Norms in the launch of the products after them, with a GPU's geometry and a processor's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.dispatch.tuned import TunedCall
from ocl_backend.fusion import recall
from tests.ocl_backend.cpu_twin import place
from tests.ocl_backend.test_loose import drawn, rms_norm, run

BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
Results = Sequence[Any]
linear = torch.nn.functional.linear


def projected(x: Any, norm: Any, *weights: Any) -> Results:
    """Return products of a norm that lives no longer."""
    (rows,) = rms_norm(x, norm)
    return tuple(linear(rows, weight) for weight in weights)


def gated(x: Any, more: Any, norm: Any, gate: Any, up: Any) -> Results:
    """Return what the first half of a layer's feed-forward network computes, and the residual."""
    kept = x + more
    (rows,) = rms_norm(kept, norm)
    return kept, torch.nn.functional.silu(linear(rows, gate)) * linear(rows, up)


def kept_rows(x: Any, norm: Any, *weights: Any) -> Results:
    """Return the norm, too: its tensor lives on while the products are made."""
    (rows,) = rms_norm(x, norm)
    return rows, *(linear(rows, weight) for weight in weights)


def read_twice(x: Any, norm: Any, *weights: Any) -> Results:
    """Read the norm beside the products."""
    (rows,) = rms_norm(x, norm)
    return rows * 3, *(linear(rows, weight) for weight in weights)


def overwritten(x: Any, norm: Any, *weights: Any) -> Results:
    """Overwrite what the norm reads, before the products are asked for."""
    x = x + 0
    (rows,) = rms_norm(x, norm)
    x.fill_(7)
    return x, *(linear(rows, weight) for weight in weights)


def check(call: Callable[..., Results], given: Sequence[Any], where: Any) -> Counter[str]:
    """Compare with the CPU; return the kernels."""
    results, kernels = run(call, given, where)
    bound = BOUNDS[given[0].dtype]
    with torch.no_grad():
        for ours, theirs in zip(results, call(*given), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=bound, atol=bound)
    return kernels


def layer(dtype: Any, rows: tuple[int, ...], inner: int, *columns: int) -> list[Any]:
    """Return rows, the weights of a norm, and those of products."""
    x, norm, *weights = drawn(dtype, (*rows, inner), (inner,), *((n, inner) for n in columns))
    return [x, norm, *(weight * inner**-0.5 for weight in weights)]


@pytest.mark.parametrize(
    ("dtype", "rows", "inner"),
    [
        (torch.float32, (1, 1), 85),
        (torch.bfloat16, (2, 2), 116),
        (torch.float16, (1, 3), 118),
        (torch.float32, (1, 1), 132),  # turns of 128 items, and 4 items
        (torch.bfloat16, (1, 1), 536),  # two turns of 256 items, and three lanes' vectors
    ],
)
def test_a_norm_is_part_of_the_products_launch(
    as_gpu: Any, dtype: Any, rows: tuple[int, ...], inner: int
) -> None:
    where = place(as_gpu)
    given = layer(dtype, rows, inner, 23, 7, 6)
    assert check(projected, given, where) == {"row_products": 1}
    assert check(kept_rows, given, where) == {"row_products": 1}
    x, norm, gate, up = layer(dtype, rows, inner, 29, 29)
    kernels = check(gated, [x, x.flip(-1), norm, gate, up], where)
    assert kernels["row_products"] == 1
    assert kernels.total() <= 2


@pytest.mark.parametrize(
    ("dtype", "inner", "columns"),
    [(torch.bfloat16, 96, 1531), (torch.float32, 83, 770), (torch.float16, 64, 9)],
)
def test_a_processors_groups_take_columns_in_turns(
    device: Any, dtype: Any, inner: int, columns: int
) -> None:
    if device.info.kind != "cpu":
        pytest.skip("of a GPU's groups each takes columns once")
    where = place(device)
    given = layer(dtype, (1, 1), inner, columns, 35, 34)
    assert check(projected, given, where) == {"row_products": 1}
    x, norm, gate, up = layer(dtype, (1, 2), inner, columns, columns)
    kernels = check(gated, [x, x.flip(-1), norm, gate, up], where)
    assert kernels["row_products"] == 1
    assert kernels.total() <= 2


@pytest.mark.parametrize("launches", [1, 2])
def test_a_product_of_several_launches_is_one_of_rows(
    device: Any, monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    """As where slices of the reduction are added: a residual goes with it, or nothing."""

    def closed(x: Any, weight: Any, more: Any, last: Any) -> Results:
        kept = more + linear(x, weight)
        return kept, linear(kept * 2, last)

    monkeypatch.setattr(TunedCall, "launches", launches)
    recall.forget()
    x, _, weight, last = layer(torch.float32, (1, 1), 94, 45, 7)
    given = [x, weight, drawn(torch.float32, (1, 1, 45))[0], last[:, :45].contiguous()]
    kernels = check(closed, given, place(device))
    assert kernels["row_products"] == (2 if launches > 1 else 0)


@pytest.mark.parametrize("skipped", [0, 1, 8])
def test_weights_may_begin_anywhere(as_gpu: Any, skipped: int) -> None:
    inner, columns = 264, 9

    def views(x: Any, norm: Any, packed: Any) -> Results:
        (rows,) = rms_norm(x, norm)
        weights = packed[skipped:][: 2 * columns * inner].view(2, columns, inner)
        return linear(rows, weights[0]), linear(rows, weights[1])

    x, norm, packed = layer(torch.bfloat16, (1, 1), inner, 2 * columns + 1)
    kernels = check(views, [x, norm, packed.flatten()], place(as_gpu))
    assert kernels == {"row_products": 1}


def test_a_norm_that_others_read_is_in_memory(as_gpu: Any) -> None:
    given = layer(torch.float32, (1, 1), 119, 23, 7)
    for call in (read_twice, overwritten):
        kernels = check(call, given, place(as_gpu))
        assert kernels["row_products"] == 1
        assert kernels.total() > 1


def test_a_norm_before_one_product_or_many_rows_is_in_memory(as_gpu: Any) -> None:
    where = place(as_gpu)
    assert "row_products" not in check(projected, layer(torch.float32, (1, 1), 122, 23), where)
    kernels = check(projected, layer(torch.float32, (1, 9), 122, 23, 7), where)
    assert "row_products" not in kernels


def test_rows_without_room_in_local_memory_are_in_memory(as_gpu: Any) -> None:
    given = layer(torch.float32, (4, 1), 2052, 5, 6)
    kernels = check(projected, given, place(as_gpu))
    assert kernels == {"expressions": 1, "row_products": 1}


def test_a_counter_is_read_beside_products_and_then_counts_on(as_gpu: Any) -> None:
    """As in a static cache: places are read, counted on, and written to."""

    def written(x: Any, norm: Any, query: Any, key: Any, keys: Any, seen: Any) -> Results:
        keys, seen = keys + 0, seen + 0
        (rows,) = rms_norm(x, norm)
        q, k = linear(rows, query), linear(rows, key)
        places = torch.arange(1, device=x.device) + seen
        seen.add_(1)
        keys.index_copy_(0, places, k[0] * 2)
        return q, keys, seen

    given = layer(torch.float32, (1, 1), 87, 23, 7)
    place_of, keys = torch.tensor([4]), torch.zeros(9, 7)
    kernels = check(written, [*given, keys, place_of], place(as_gpu))
    kernels -= Counter(pointwise_add_kernel=2)  # the copies of what is written in place
    assert kernels == {"row_products": 1, "expressions": 1}
