"""Sums of products of three tensors: bilinear layers and their gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place


@pytest.mark.parametrize(
    ("lead", "left", "right", "out"),
    [((20, 4), 4, 4, 16), ((7,), 5, 9, 3), ((1,), 1, 1, 1), ((2, 3, 4), 6, 7, 2), ((0,), 3, 2, 4)],
)
def test_a_bilinear_layer_and_its_gradients(
    device: Any, lead: tuple[int, ...], left: int, right: int, out: int
) -> None:
    theirs = torch.nn.Bilinear(left, right, out)
    ours = torch.nn.Bilinear(left, right, out, device=place(device))
    ours.load_state_dict(theirs.state_dict())
    given = [torch.randn(*lead, size, requires_grad=True) for size in (left, right)]
    there = [each.detach().to(place(device)).requires_grad_() for each in given]
    for _ in range(3):
        expected, found = theirs(*given), ours(*there)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
        weight = torch.randn_like(expected)
        wanted = torch.autograd.grad(expected, (*given, *theirs.parameters()), weight)
        made = torch.autograd.grad(
            found, (*there, *ours.parameters()), weight.to(place(device))
        )  # fmt: skip
        for one, other in zip(made, wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("summed", [(), (1,), (0, 2), (3, 1)])
def test_any_dimensions_are_summed(device: Any, summed: tuple[int, ...]) -> None:
    tensors = torch.randn(3, 5), torch.randn(4, 5, 6), torch.randn(3, 4, 6)
    call = torch.ops.aten._trilinear
    expands = [1, 3], [0], [2]  # of dimensions 0 (3), 1 (4), 2 (5) and 3 (6)
    theirs = call(*tensors, *expands, list(summed))
    ours = call(*[each.to(place(device)) for each in tensors], *expands, list(summed))
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


def test_integers_and_errors_are_torchs(device: Any) -> None:
    call, expands = torch.ops.aten._trilinear, ([1, 3], [0], [1, 2])
    whole = torch.ones(2, 3).long(), torch.ones(4, 3, 5).long(), torch.ones(2, 5).long()
    ours = call(*[each.to(place(device)) for each in whole], *expands, [2, 3])
    assert torch.equal(ours.cpu(), call(*whole, *expands, [2, 3]))
    single = torch.randn(2, 1), torch.randn(4, 3, 5), torch.randn(1, 5)
    with pytest.raises(RuntimeError, match="doesn't match"):
        call(*[each.to(place(device)) for each in single], *expands, [2, 3])
