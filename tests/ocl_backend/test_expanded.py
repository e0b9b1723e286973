"""Writes to tensors whose items share memory, or that are read, too: torch takes a few."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401  (registers the device)
from tests.ocl_backend.cpu_twin import assert_same, ocl, place

WRITES: dict[str, Callable[[Any], Any]] = {
    "fill": lambda x: x.fill_(2.0),
    "fill from a tensor": lambda x: x.fill_(x[0, 0].clone()),
    "zero": lambda x: x.zero_(),
    "masked fill": lambda x: x.masked_fill_(indices(x, 1, 0, 1, 0).bool(), 2.0),
    "masked fill by rows": lambda x: x.masked_fill_(indices(x, 1, 0, 1)[:, None].bool(), 2.0),
    "index put": lambda x: x.index_put_((indices(x, 1),), ones(x, 1)),
    "index fill": lambda x: x.index_fill_(0, indices(x, 1), 2.0),
    "add": lambda x: x.add_(1),
    "copy": lambda x: x.copy_(ones(x, 3, 4)),
    "copy from the host": lambda x: x.copy_(torch.ones(3, 4)),
    "scatter": lambda x: x.scatter_(1, indices(x, 0, 1, 2)[:, None], 1.0),
    "scatter add": lambda x: x.scatter_add_(1, indices(x, 0, 1, 2)[:, None], ones(x, 3, 1)),
    "index add": lambda x: x.index_add_(1, indices(x, 1), ones(x, 3, 1)),
    "index copy": lambda x: x.index_copy_(1, indices(x, 1), ones(x, 3, 1)),
    "index reduce": lambda x: x.index_reduce_(1, indices(x, 1), ones(x, 3, 1), "amax"),
    "put": lambda x: x.put_(indices(x, 1), ones(x, 1)),
    "masked scatter": lambda x: x.masked_scatter_(x > 0, ones(x, 12)),
    "cumsum": lambda x: x.cumsum_(1),
    "uniform": lambda x: x.uniform_(),
}


def indices(x: Any, *numbers: int) -> Any:
    return torch.tensor(numbers, device=x.device)


def ones(x: Any, *shape: int) -> Any:
    return torch.ones(*shape, device=x.device)


def written(write: Callable[[Any], Any], place: Any) -> Any:
    x = torch.arange(1.0, 4.0).to(place)[:, None].expand(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the CPU calls some of it deprecated
        try:
            write(x)
        except RuntimeError as error:
            assert "single memory location" in str(error)
            return None
    return x


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_taken_or_refused_as_on_the_cpu(device: Any, name: str) -> None:
    ocl.reset_fallbacks()
    theirs, ours = (written(WRITES[name], where) for where in ("cpu", place(device)))
    assert (theirs is None) == (ours is None)
    assert ocl.fallbacks() == {}
    if theirs is not None:
        assert_same(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_a_tensor_is_filled_with_one_of_its_own_items(device: Any, dtype: Any) -> None:
    x = torch.arange(24).view(4, 6).to(dtype)
    ours = x.to(place(device))
    assert (ours.clone().fill_(ours[2, 3]) == 15).all()
    assert torch.equal(ours.fill_(ours[2, 3]).cpu(), torch.full_like(x, 15))
    ours = x.to(place(device))
    assert torch.equal(ours.masked_fill_(ours > 5, ours[2, 3]).cpu(), x.masked_fill(x > 5, 15))
