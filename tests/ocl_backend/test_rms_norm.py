"""RMS normalisation: one launch where gradients are recorded or rows are many, else a chain."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

import ocl_backend  # noqa: F401  (registers the device)
from tests.ocl_backend.cpu_twin import place

BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}


def of_doubles(x: Any, weight: Any, eps: float, slope: Any) -> list[Any]:
    """Return the result and the gradients of x and weight, in float64 on the CPU."""
    leaves = [t.detach().cpu().double().requires_grad_() for t in (x, weight) if t is not None]
    y = functional.rms_norm(leaves[0], x.shape[-1:], leaves[1] if len(leaves) > 1 else None, eps)
    return [y, *torch.autograd.grad(y, leaves, slope.cpu().double())]


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("shape", [(3, 1), (7, 17), (2, 5, 96), (70, 605), (4, 4099), (0, 8)])
@pytest.mark.parametrize("has_weight", [True, False])
def test_results_and_gradients(device: Any, dtype: Any, shape: Any, has_weight: bool) -> None:
    torch.manual_seed(0)
    x = (2 * torch.randn(shape)).to(dtype).to(place(device)).requires_grad_()
    weight = (torch.rand(shape[-1:]) + 0.5).to(dtype).to(x.device).requires_grad_()
    leaves = [x, weight] if has_weight else [x]
    y = functional.rms_norm(x, shape[-1:], weight if has_weight else None, 0.01)
    slope = torch.randn(shape).to(dtype).to(x.device)
    found = [y, *torch.autograd.grad(y, leaves, slope)]
    expected = of_doubles(x, weight if has_weight else None, 0.01, slope)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype is dtype and ours.shape == theirs.shape
        if theirs.numel():
            apart = (ours.cpu().double() - theirs).abs().max()
            assert apart <= BOUNDS[dtype] * max(1, theirs.abs().max())


def test_without_eps_it_is_that_of_the_sums(device: Any) -> None:
    for dtype in (torch.float32, torch.float16):
        x = torch.full((100, 4), 1e-4).to(dtype)
        theirs = functional.rms_norm(x, (4,))
        ours = functional.rms_norm(x.to(place(device)), (4,))
        torch.testing.assert_close(ours.cpu(), theirs)


def test_gradients_of_gradients_and_transforms(device: Any) -> None:
    x = torch.randn(5, 8, dtype=torch.float64, device=place(device), requires_grad=True)
    weight = torch.rand(8, dtype=torch.float64, device=x.device, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda *t: functional.rms_norm(t[0], (8,), t[1]), (x, weight)
    )
    rows = torch.randn(3, 5, 8, device=x.device)
    each = torch.func.vmap(lambda row: functional.rms_norm(row, (8,)))(rows)
    torch.testing.assert_close(each.cpu(), functional.rms_norm(rows.cpu(), (8,)))


@pytest.mark.parametrize(("rows", "recorded", "launches"), [(9, True, 1), (900, False, 1)])
def test_it_is_one_launch(device: Any, rows: int, recorded: bool, launches: int) -> None:
    x = torch.randn(rows, 64, device=place(device))
    weight = torch.rand(64, device=x.device, requires_grad=recorded)
    with torch.ocl.profile(file=None) as seen:
        functional.rms_norm(x, (64,), weight)
        torch.ocl.synchronize(place(device))
    assert [command.name for command in seen.commands] == ["layer_norm_fwd"] * launches


def test_a_weight_of_another_dtype_or_shape(device: Any) -> None:
    x, weight = torch.randn(70, 8), torch.rand(8, dtype=torch.bfloat16)
    theirs = functional.rms_norm(x, (8,), weight)
    ours = functional.rms_norm(x.to(place(device)), (8,), weight.to(place(device)))
    torch.testing.assert_close(ours.cpu(), theirs)
    with pytest.raises(RuntimeError, match="must match"):
        functional.rms_norm(x.to(place(device)), (8,), torch.rand(7, device=place(device)))


def test_eps_of_a_layer_norm_in_doubles_is_a_double(device: Any) -> None:
    x = torch.randn(7, 33, dtype=torch.float64)
    theirs = functional.layer_norm(x, (33,), eps=0.1)
    ours = functional.layer_norm(x.to(place(device)), (33,), eps=0.1)
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=1e-14)
