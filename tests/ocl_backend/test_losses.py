"""Losses and their gradients against the CPU, and in how few launches they are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from tests.ocl_backend.cpu_twin import place, relative, run

LOSSES: dict[str, Callable[..., Any]] = {
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "soft_margin": functional.soft_margin_loss,
    "smooth_l1": lambda x, y, **kwargs: functional.smooth_l1_loss(x, y, beta=1.5e-2, **kwargs),
    "huber": lambda x, y, **kwargs: functional.huber_loss(x, y, delta=0.3, **kwargs),
    "cross_entropy": functional.binary_cross_entropy,
    "with_logits": functional.binary_cross_entropy_with_logits,
    "weighted": lambda x, y, **kwargs: functional.binary_cross_entropy_with_logits(
        x, y, weight=y, pos_weight=y, **kwargs
    ),
}
TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 4e-2, torch.float64: 1e-9}
FEW = {"mse": 1, "soft_margin": 1, "smooth_l1": 1, "huber": 1, "with_logits": 1}
"""Launches forward, of one piece."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_items_follow_the_cpu(device: Any, name: str, dtype: Any) -> None:
    torch.manual_seed(0)
    for shape in [(), (33, 5), (0, 3), (70001,)]:
        for reduction in ("mean", "sum", "none"):
            x, y = torch.rand(shape).to(dtype), torch.rand(shape).to(dtype)
            if shape == (33, 5):  # of another order than the target
                x = x.t().contiguous().t()
            follow(lambda a, b, r=reduction: LOSSES[name](a, b, reduction=r), x, y, device, dtype)


def follow_doubles(device: Any, loss_of: Callable[[Any], Any], x: Any) -> None:
    """Fail where a loss or its gradient is none of doubles: the CPU adds up floats one by one."""
    torch.ocl.reset_fallbacks()
    exact, there = run(loss_of, [x.double()], 1), x.to(place(device))
    for given in (there, functional.pad(there, (3, 2))[..., 3 : 3 + x.shape[-1]]):
        found = run(loss_of, [given], 1)
        errors = [relative(o.double(), t) for o, t in zip(found, exact, strict=True)]
        assert max(errors) <= TOLERANCES[x.dtype]
    assert torch.ocl.fallbacks() == {}


MARGINS = ((7, 12_610), (70, 33), (3, 5), (1, 1), (5,), (0, 4), (2, 17_003))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_margins_follow_the_cpu(anywhere: Any, dtype: Any, p: int, weighted: bool) -> None:
    torch.manual_seed(0)
    for shape in MARGINS:
        x, classes = torch.randn(shape).to(dtype), shape[-1]
        target = torch.randint(0, classes, shape[:-1])
        weight = torch.rand(classes).to(dtype) if weighted else None
        for reduction in ("mean", "sum", "none"):
            if not x.numel():  # what the CPU returns of no rows was not written
                there = x.to(place(anywhere))
                loss = functional.multi_margin_loss(there, target.to(there.device))
                assert loss.isnan()
                continue

            def loss_of(x: Any, r: str = reduction, t: Any = target, w: Any = weight) -> Any:
                w = None if w is None else w.to(x.device, x.dtype)
                given = {"p": p, "margin": 0.7, "weight": w, "reduction": r}
                return functional.multi_margin_loss(x, t.to(x.device), **given)

            follow_doubles(anywhere, loss_of, x)


def test_margins_are_a_launch_each_way(device: Any) -> None:
    x = torch.randn(40, 70, device=place(device), requires_grad=True)
    target = torch.randint(0, 70, (40,)).to(x.device)
    functional.multi_margin_loss(x, target, reduction="none")
    with torch.ocl.profile(file=None) as seen:
        loss = functional.multi_margin_loss(x, target, reduction="none")
    assert [command.name for command in seen.commands] == ["multi_margin_fwd_rows"]
    with torch.ocl.profile(file=None) as seen:
        torch.autograd.grad(loss, x, torch.ones_like(loss))
    assert [c.name for c in seen.commands][1:] == ["multi_margin_bwd_rows"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_margins_of_several_labels_follow_the_cpu(anywhere: Any, dtype: Any) -> None:
    torch.manual_seed(0)
    for shape in ((6, 70), (3, 5), (9,), (1, 1), (4, 1_030)):
        x, target = torch.randn(shape).to(dtype), torch.randint(0, shape[-1], shape)
        cuts = torch.randint(0, min(shape[-1], 9) + 1, (*shape[:-1], 1))
        target[torch.arange(shape[-1]).expand(shape) >= cuts] = -1  # some rows name none, or twice
        for reduction in ("mean", "sum", "none"):

            def loss_of(x: Any, r: str = reduction, t: Any = target) -> Any:
                return functional.multilabel_margin_loss(x, t.to(x.device), reduction=r)

            follow_doubles(anywhere, loss_of, x)


def test_margins_of_several_labels_are_few_launches(device: Any) -> None:
    x = torch.randn(40, 70, device=place(device), requires_grad=True)
    target = torch.randint(-1, 70, (40, 70)).to(x.device)
    functional.multilabel_margin_loss(x, target)
    with torch.ocl.profile(file=None) as seen:
        loss = functional.multilabel_margin_loss(x, target)
    assert [c.name for c in seen.commands] == ["label_margins_fwd_kernel", "reduce_mean"]
    with torch.ocl.profile(file=None) as seen:
        torch.autograd.grad(loss, x, torch.ones_like(loss))
    assert [c.name for c in seen.commands][1:] == ["label_margins_bwd_kernel"]
    functional.multilabel_margin_loss(x, torch.full_like(target, 70))
    with pytest.raises(torch.AcceleratorError, match="multilabel_margin_loss: target out of range"):
        torch.ocl.synchronize(place(device))


@pytest.mark.parametrize("label", [5, -1])
def test_a_margins_target_that_is_no_class_is_noted(device: Any, label: int) -> None:
    x = torch.randn(2, 5, device=place(device))
    functional.multi_margin_loss(x, torch.tensor([0, label], device=x.device))
    with pytest.raises(torch.AcceleratorError, match="multi_margin_loss: target out of range"):
        torch.ocl.synchronize(place(device))
    with pytest.raises(RuntimeError, match="target tensor should be 1-D"):
        functional.multi_margin_loss(x, torch.tensor([0], device=x.device))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FEW)
def test_a_loss_is_one_launch(device: Any, name: str) -> None:
    x, y = (torch.rand(500, device=place(device)) for _ in range(2))
    LOSSES[name](x, y)
    with torch.ocl.profile(file=None) as profile:
        LOSSES[name](x, y)
    assert [command.name for command in profile.commands] == ["reduce_loss"] * FEW[name]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 3), (7,), (4864, 34), (50001, 2), (3, 40000), (2, 5, 40, 40), (3, 7, 33), (4, 3, 5)],
)
def test_nll_loss_follows_the_cpu(device: Any, shape: Any, weighted: bool, dtype: Any) -> None:
    """Blocks of a gradient end within rows, and many targets are added up in pieces."""
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = torch.randint(classes, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if target.numel() > 1:
        target.view(-1)[1] = -100
    weight = torch.rand(classes).to(dtype) + 0.5 if weighted else None
    for reduction in ("mean", "sum", "none"):

        def loss(a: Any, b: Any, reduction: str = reduction) -> Any:
            own = None if weight is None else weight.to(a.device)
            return functional.nll_loss(a, b, own, reduction=reduction)

        follow(loss, x, target, device, dtype)


def follow(loss: Callable[..., Any], x: Any, y: Any, device: Any, dtype: Any) -> None:
    """Compare a loss and its gradient with the CPU's."""
    theirs = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    ours = x.detach().to(place(device)).requires_grad_()
    expected, found = loss(theirs, y), loss(ours, y.to(place(device)))
    assert expected.dtype is found.dtype
    gradient = torch.ones_like(expected)
    expected.backward(gradient)
    found.backward(gradient.to(place(device)))
    within = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype], "equal_nan": True}
    torch.testing.assert_close(found.cpu(), expected, **within)
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad, **within)
