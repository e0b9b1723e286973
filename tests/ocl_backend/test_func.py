"""Transforms of `torch.func`, whose tensors stand for others and have no memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap
from torch.nn.functional import (
    gelu,
    linear,
    logsigmoid,
    scaled_dot_product_attention,
    silu,
)

from tests.ocl_backend.cpu_twin import agree, assert_same, place, relative


def with_constants(x: Tensor) -> Tensor:
    """A function of x in which most calls record no gradient."""
    with torch.no_grad():
        rows = x.view(1, 1, -1, 2)
        seen = scaled_dot_product_attention(rows, rows, rows).sum()
        scale = linear(x, x.view(1, -1)).sum() + (gelu(x) * silu(-x) - x / 3).mean() + seen
    return (x**3 * scale.rsqrt()).sum()


@pytest.mark.parametrize("transform", ["grad", "vmap", "grad twice"])
def test_calls_without_gradients_in_a_transform(device: Any, transform: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 6) + 1

    def run(x: Tensor) -> Tensor:
        if transform == "vmap":
            return vmap(grad(with_constants))(x)
        if transform == "grad":
            return grad(with_constants)(x[0])
        return grad(lambda x: grad(with_constants)(x).square().sum())(x[0])

    expected = run(x)
    for _ in range(4):  # noted, then recalled
        assert_same([run(x.to(place(device)))], [expected])


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_each_of_many(device: Any, masked: bool) -> None:
    """`vmap` over one operand, and gradients of each item."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 5, 8), torch.randn(2, 5, 8)
    bias = torch.randn(3, 4, 5) if masked else None

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        return scaled_dot_product_attention(q[None], k[None], v[None], bias)[0]

    def run(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> list[Tensor]:
        where = (0, 0, None, 0 if masked else None)
        slope = grad(lambda *given: attend(*given).sin().sum())
        return [vmap(attend, where)(q, k, v, bias), vmap(slope, where)(q, k, v, bias)]

    there: Any = [t if t is None else t.to(place(device)) for t in (q, k, v, bias)]
    assert_same(run(*there), run(q, k, v, bias))


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_slopes_of_the_logarithm_of_a_sigmoid(device: Any, transform: Any) -> None:
    """Several gradients of one input, which has fewer dimensions."""
    x = torch.linspace(-3, 3, 6).view(2, 3)
    agree(device, transform(logsigmoid), x)


CELLS: dict[str, Any] = {
    "lstm cell": (lambda: nn.LSTMCell(6, 5), (3, 6)),
    "gru cell": (lambda: nn.GRUCell(6, 5, bias=False), (3, 6)),
    "lstm": (lambda: nn.LSTM(6, 5, num_layers=2, bidirectional=True), (4, 3, 6)),
    "gru": (lambda: nn.GRU(6, 5), (4, 3, 6)),
}


@pytest.mark.parametrize("name", CELLS)
def test_forward_gradients_of_recurrent_steps(device: Any, name: str) -> None:
    """Of the input and of all weights; and gradients of those, backwards."""
    torch.manual_seed(0)
    make, shape = CELLS[name]
    cell = make()
    x, tangent = torch.randn(shape), torch.randn(shape)

    def run(x: Tensor, tangent: Tensor, cell: nn.Module) -> tuple[Tensor, ...]:
        given = dict(cell.named_parameters())
        ones = {key: torch.ones_like(p) for key, p in given.items()}

        def last(x: Tensor, given: dict[str, Tensor]) -> Tensor:
            made = functional_call(cell, given, (x,))
            return made[0] if isinstance(made, tuple) else made

        def slope(x: Tensor) -> Tensor:
            return jvp(last, (x, given), (tangent, ones))[1]

        return slope(x).detach(), grad(lambda x: slope(x).square().sum())(x).detach()

    theirs = run(x.double(), tangent.double(), cell.double())
    where = place(device)
    ours = run(x.to(where), tangent.to(where), cell.float().to(where))
    assert [relative(a, b.float()) < 1e-5 for a, b in zip(ours, theirs, strict=True)] == [True] * 2
