"""Padding by items of the other end: torch's results, by one launch each way."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch.nn import functional

from tests.ocl_backend.cpu_twin import agree, check, ocl, place, refuse_alike

CASES = [
    ((2, 3, 7), (2, 3)),
    ((3, 7), (7, 0)),
    ((2, 3, 6, 5), (2, 1, 0, 6)),
    ((3, 6, 5), (5, 5, 6, 6)),
    ((2, 3, 4, 6, 5), (1, 0, 2, 2, 4, 3)),
    ((4, 16, 14, 14), (2, 2, 2, 2)),
]


def circular(x: Tensor, padding: tuple[int, ...]) -> Tensor:
    return functional.pad(x, padding, mode="circular")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("shape", "padding"), CASES)
def test_padding_and_its_gradient(device: Any, shape: Any, padding: Any) -> None:
    x = torch.randn(shape)
    check(device, lambda x: circular(x, padding).square(), x)
    check(device, lambda x: circular(x.transpose(0, 1), padding), x.transpose(0, 1).contiguous())
    for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64):
        agree(device, lambda x: circular(x, padding), x.mul(3).to(dtype))


def test_a_launch_each_way(device: Any) -> None:
    x = torch.randn(2, 3, 8, 9).to(place(device)).requires_grad_()
    circular(x, (1, 2, 3, 4)).sum().backward()  # makes the tables
    with ocl.profile(file=None) as seen:
        y = circular(x, (1, 2, 3, 4))
    assert len(seen.commands) == 1
    assert y.is_contiguous()
    grad = torch.ones_like(y)
    x.grad = None
    with ocl.profile(file=None) as seen:
        y.backward(grad)
    assert len(seen.commands) == 1
    with torch.inference_mode(), ocl.profile(file=None) as seen:
        circular(x.detach(), (1, 2, 3, 4))
    assert len(seen.commands) == 1


def test_gradients_of_gradients_and_transforms(device: Any) -> None:
    x = torch.randn(2, 3, 5, 6)

    def twice(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(circular(x, (2, 1, 1, 0)).pow(3).sum(), x, create_graph=True)
        (found,) = torch.autograd.grad(grad.square().sum(), x)
        return found

    agree(device, twice, x, tolerance=1e-4)
    agree(device, torch.func.grad(lambda x: circular(x, (2, 1, 1, 0)).square().sum()), x)
    agree(device, torch.vmap(lambda x: circular(x, (2, 1, 1, 0))), x)


def test_what_torch_composes_or_refuses(device: Any) -> None:
    x = torch.randn(2, 3, 5, 6)
    agree(device, lambda x: circular(x, (-1, 2, 1, -2)), x)
    agree(device, lambda x: circular(x, (1, 1, 0, 0)), x[:0])
    refuse_alike(device, lambda x: circular(x, (7, 0, 0, 0)), x)
