"""Operators that were compositions and are one launch each, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from ocl_backend.kernels.dimensions import collapse
from ocl_backend.kernels.elementwise import ItemSharing, source
from ocl_backend.ops.math import complex_kernels, single_launches
from tests.ocl_backend.cpu_twin import agree, ocl, place, refuse_alike
from tests.ocl_backend.fusion_cases import names

COMPLEX: dict[str, Callable[..., Any]] = {
    "sum": torch.add,
    "difference": torch.sub,
    "product": torch.mul,
    "quotient": torch.div,
    "exponential": lambda x, y: x.exp(),
    "conjugated": lambda x, y: x.conj() * y,
    "of a real": lambda x, y: x * y.real,
    "by a real": lambda x, y: y.real / x,
    "negative": lambda x, y: -x,
    "polar": lambda x, y: torch.polar(x.real.abs(), y.imag),
    "parts": lambda x, y: torch.complex(x.real, y.real),
    "in place": lambda x, y: x.clone().mul_(y),
    "by itself": lambda x, y: x.clone().div_(x),
    "turned": lambda x, y: x.mT * y.mT,
    "cut out": lambda x, y: x[:, 1:9] * y[:, ::2][:, :1],
    "lengths": lambda x, y: x.abs(),
    "angles": lambda x, y: x.mT.angle(),
}


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers(device: Any, name: str, dtype: Any) -> None:
    torch.manual_seed(5)
    x, y = torch.randn(6, 11, dtype=dtype), torch.randn(6, 11, dtype=dtype)
    agree(device, COMPLEX[name], x, y)
    agree(device, COMPLEX[name], x, y[:1].expand(6, 11))


def test_an_exponential_of_infinite_parts(device: Any) -> None:
    ends = [float("inf"), -float("inf"), float("nan"), 0.0, 1.0]
    numbers = torch.tensor([complex(a, b) for a in ends for b in ends])
    agree(device, torch.exp, numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_gradients_of_glu_are_one_launch(device: Any, dim: int, dtype: Any) -> None:
    def backward(grad: Any, x: Any) -> Any:
        return torch.ops.aten.glu_backward(grad, x, dim)

    x = torch.randn(46, 66, dtype=torch.float32).mul(4).to(dtype)
    x[0, 0], x[-1, -1] = 100, -200  # whose powers are 0 and infinite
    ocl.reset_fallbacks()
    for given in (x, x.mT.contiguous().mT, x[:, 1:-1]):
        grad = torch.randn_like(given.chunk(2, dim)[0].contiguous())
        there = grad.to(place(device)), given.to(place(device))
        theirs = backward(grad.double(), given.double())  # the CPU rounds parts of it
        torch.testing.assert_close(backward(*there).cpu(), theirs.to(dtype))
    assert ocl.fallbacks() == {}
    assert names(lambda: backward(*there)) == ["glu_backward_kernel"]
    with pytest.raises(RuntimeError, match="even"):
        backward(there[0], there[1][1:, 1:])


@pytest.mark.parametrize("call", [lambda x: x * x, torch.abs, torch.angle])
def test_a_call_of_complex_numbers_is_one_launch(device: Any, call: Any) -> None:
    x = torch.randn(33, dtype=torch.complex64).to(place(device))
    call(x)
    with ocl.profile(file=None) as profile:
        call(x)
    assert len(profile.commands) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_processor_computes_with_vectors_of_complex_numbers(device: Any, dtype: Any) -> None:
    layout = collapse((500,), [(1,)] * 3)
    kernel = complex_kernels._kernel("mul", dtype, (True, True))
    width = ItemSharing.of(layout, replace(device.limits, kind="cpu"), kernel).width
    assert width == 8
    text = source(kernel, 1, ("1", "1", "1"), width, 1, False, True)
    assert "vload16(0, a_data + 2 * (long)a_at)" in text


def test_positions_of_triangles_are_recalled(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factory has no operand; its device says where it runs."""
    there = place(device)
    calls = [torch.tril_indices(31, 17, device=there) for _ in range(3)]
    monkeypatch.setattr(single_launches, "launch", lambda *_: pytest.fail("a call in Python"))
    calls += [torch.tril_indices(31, 17, device=there) for _ in range(2)]
    monkeypatch.undo()
    calls.append(torch.tril_indices(31, 17, device=there, dtype=torch.int32).long())
    assert torch.triu_indices(31, 17, device=there).shape != calls[0].shape
    for found in calls:
        assert torch.equal(found.cpu(), torch.tril_indices(31, 17))
    assert len({found.data_ptr() for found in calls}) == len(calls)


def test_positions_of_triangles(device: Any) -> None:
    for make in (torch.tril_indices, torch.triu_indices):
        far = make(3, 70_000, 69_990, device=place(device))  # numbers of 64 bits
        assert torch.equal(far.cpu(), make(3, 70_000, 69_990))
        for rows in (0, 1, 3, 8):
            for columns in (0, 1, 5):
                for offset in range(-9, 9):
                    ours = make(rows, columns, offset, device=place(device), dtype=torch.int32)
                    theirs = make(rows, columns, offset, dtype=torch.int32)
                    assert torch.equal(ours.cpu(), theirs), (make, rows, columns, offset)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_cross_products(device: Any, dtype: Any) -> None:
    torch.manual_seed(6)
    a, b = ((torch.randn(5, 3, 4) * 9).to(dtype) for _ in "ab")
    agree(device, lambda a, b: torch.linalg.cross(a, b, dim=1), a, b)
    agree(device, lambda a, b: torch.linalg.cross(a, b[:1], dim=-2), a, b)
    agree(device, lambda a, b: torch.linalg.cross(a.mT, b.mT), a, b)
    with pytest.raises(RuntimeError, match=r"linalg\.cross"):
        torch.linalg.cross(*(x.to(place(device)) for x in (a, b)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_log_sigmoid_and_its_gradient(device: Any, dtype: Any) -> None:
    x = torch.linspace(-40, 40, 203, dtype=dtype).view(7, 29)

    def both(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = functional.logsigmoid(x)
        return y, torch.autograd.grad(y, x, x.detach().cos())[0]

    agree(device, both, x)


@pytest.mark.parametrize("case", [(3, 1, 1, 1), ((2, 4), (2, 1), (0, 3), (3, 2)), (1, 1, 0, 2)])
def test_windows_as_columns_and_back(device: Any, case: Any) -> None:
    torch.manual_seed(7)
    images = torch.randn(2, 3, 13, 10)
    columns = functional.unfold(images, *case)
    agree(device, lambda x: functional.unfold(x, *case), images)
    agree(device, lambda x: functional.unfold(x[0], *case), images)
    agree(
        device, lambda x: functional.unfold(x, *case), images.to(memory_format=torch.channels_last)
    )
    agree(device, lambda x: functional.fold(x, (13, 10), *case), columns)
    agree(device, lambda x: functional.fold(x.mT.contiguous().mT, (13, 10), *case), columns)
    refuse_alike(device, lambda x: functional.fold(x, (40, 10), *case), columns)


def test_rows_of_embeddings_are_shortened(device: Any) -> None:
    table, places = torch.randn(9, 5) * 3, torch.tensor([1, 4, 1, 8])

    def looked_up(table: Any, places: Any) -> Any:
        table = table.clone()
        return functional.embedding(places, table, max_norm=1.0), table

    agree(device, looked_up, table, places)
