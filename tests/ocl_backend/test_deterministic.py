"""torch.use_deterministic_algorithms: new memory is filled, racing writes are put in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from tests.ocl_backend.cpu_twin import place


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_new_memory_is_filled(device: Any) -> None:
    empty, strided = torch.empty(5, device=place(device)), torch.empty_strided((3,), (2,))
    assert empty.isnan().all()
    assert strided.isnan().all()
    assert torch.empty(3, dtype=torch.int16, device=place(device)).tolist() == [2**15 - 1] * 3
    grown = torch.zeros(4, device=place(device)).resize_(5000)
    assert grown[:4].tolist() == [0.0] * 4
    assert grown[1024:].isnan().all()


CASES = {
    "scatter_add_": lambda x, i, v: x.scatter_add_(0, i, v),
    "scatter_": lambda x, i, v: x.scatter_(0, i, v),
    "index_add_": lambda x, i, v: x.index_add_(0, i, v, alpha=0.5),
    "index_put_": lambda x, i, v: x.index_put_((i,), v),
    "accumulate": lambda x, i, v: x.index_put_((i,), v, accumulate=True),
    "a number": lambda x, i, v: x.scatter_add_(0, i, torch.ones_like(v)),
    "product": lambda x, i, v: x.add_(1).scatter_reduce_(0, i, v, "prod"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_items_that_meet_take_turns(device: Any, name: str, dtype: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 7, (3000,), generator=generator)
    # magnitudes apart: another order is another sum
    value = (torch.randn(3000, generator=generator) * 10.0 ** (index % 3)).to(dtype)
    value = value.sign().where(torch.tensor(name == "product"), value)
    on = [t.to(place(device)) for t in (torch.zeros(7, dtype=dtype), index, value)]
    runs = [CASES[name](on[0].clone(), *on[1:]).cpu() for _ in range(3)]
    assert all(torch.equal(run, runs[0]) for run in runs)
    expected = CASES[name](torch.zeros(7, dtype=torch.float64), index, value.double())
    torch.testing.assert_close(runs[0].double(), expected, rtol=2e-3, atol=2e-2)
    if name in ("scatter_", "index_put_"):
        assert torch.equal(runs[0].double(), expected)


def test_rows_that_meet_take_turns(device: Any) -> None:
    table = torch.nn.Embedding(5, 3)
    twin = torch.nn.Embedding(5, 3, _weight=table.weight.detach().clone()).to(place(device))
    index = torch.randint(0, 5, (40,))
    table(index).square().sum().backward()
    twin(index.to(place(device))).square().sum().backward()
    torch.testing.assert_close(twin.weight.grad.cpu(), table.weight.grad)
