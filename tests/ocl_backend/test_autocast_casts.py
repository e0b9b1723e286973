"""What autocast casts, how often, and that the device does it as torch does with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ocl_backend.ops.sequence.transformer import CAST_BY_PARTS
from tests.ocl_backend.cpu_twin import assert_same, place, relative

HALVES = [torch.float16, torch.bfloat16]
OF_CUDNN = {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::_cudnn_rnn"}


class Casts(TorchDispatchMode):
    """Counts the casts to half precision below autocast."""

    count = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if operator is torch.ops.aten._to_copy.default and kwargs.get("dtype") in HALVES:
            self.count += 1
        return operator(*args, **kwargs)


def cast(key: str) -> set[str]:
    """The operators that a dispatch key of autocast knows."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name for name in names if name.startswith("aten::")}


def test_the_operators_are_those_of_cuda() -> None:
    # on CUDA torch's layers do not call these under autocast, but their parts
    by_parts = {f"aten::{name}" for name in CAST_BY_PARTS}
    assert cast("AutocastPrivateUse1") - by_parts == cast("AutocastCUDA") - OF_CUDNN


def learner(where: Any) -> tuple[Tensor, Tensor]:
    """Items in bf16 and a weight that learns, which alone has to be cast."""
    torch.manual_seed(1)
    x, weight = torch.randn(4, 8).bfloat16(), torch.randn(8, 8)
    return x.to(where), weight.to(where).requires_grad_()


def casts(where: Any, use: Callable[[Tensor, Tensor], Any], **options: Any) -> int:
    x, weight = learner(where)
    with Casts() as counted, torch.autocast(x.device.type, torch.bfloat16, **options):
        use(x, weight)
    return counted.count


def thrice(x: Tensor, weight: Tensor) -> None:
    for _ in range(3):
        functional.linear(x, weight)


def around_another(x: Tensor, weight: Tensor) -> None:
    functional.linear(x, weight)
    with torch.autocast(x.device.type, enabled=False):
        assert functional.linear(x.float(), weight).dtype is torch.float32
    with torch.autocast(x.device.type, torch.bfloat16):
        functional.linear(x, weight)
    assert functional.linear(x, weight).dtype is torch.bfloat16


def results_of_operators(x: Tensor, weight: Tensor) -> None:
    for _ in range(3):
        functional.linear(x, weight * 1)


@pytest.mark.parametrize(
    ("use", "options", "count"),
    [
        (thrice, {}, 1),
        (thrice, {"cache_enabled": False}, 3),
        (around_another, {}, 1),
        (around_another, {"cache_enabled": False}, 3),
        (results_of_operators, {}, 3),
    ],
)
def test_a_weight_is_cast_once_per_context_as_on_the_cpu(
    device: Any, use: Any, options: Any, count: int
) -> None:
    assert casts("cpu", use, **options) == count
    assert casts(place(device), use, **options) == count
    assert casts(place(device), use, **options) == count  # nothing is left of a context


def test_gradients_of_both_uses_of_a_cast_weight_add_up(device: Any) -> None:
    def gradient(where: Any, enabled: bool) -> Tensor:
        x, weight = learner(where)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=enabled):
            x = x if enabled else x.float()
            functional.linear(functional.linear(x, weight), weight).sum().backward()
        assert weight.grad is not None
        return weight.grad

    exact = gradient("cpu", enabled=False)
    ours = gradient(place(device), enabled=True)
    assert relative(ours, exact) < 2 * torch.finfo(torch.bfloat16).eps


FULL: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(1),
    "prod": lambda x: x.prod(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "norm": lambda x: x.norm(),
    "norm of rows": lambda x: x.norm(3, 1),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "matrix_norm": lambda x: torch.linalg.matrix_norm(x),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[1:]),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[1:]),
    "interpolate": lambda x: functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "exp": lambda x: x.exp(),
    "pow": lambda x: x**3,
    "mse_loss": lambda x: functional.mse_loss(x, x.flip(1)),
    "of two dtypes": lambda x: torch.cat([x, x.float() + 1e-3]),
    "scatter_add": lambda x: x.float().scatter_add(0, (x > 1).long(), x),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_what_half_precision_would_spoil_is_computed_in_full(
    device: Any, half: Any, name: str
) -> None:
    if name == "rms_norm" and "aten::rms_norm" not in cast("AutocastCUDA"):
        pytest.skip("this torch computes it as it comes")
    torch.manual_seed(2)
    values = (torch.rand(6, 40) + 0.5).to(half)
    exact, ours = values.float().requires_grad_(), values.to(place(device)).requires_grad_()
    result = FULL[name](exact)
    torch.ocl.reset_fallbacks()
    with torch.autocast("ocl", half):
        theirs = FULL[name](ours)
    assert_same(theirs, result)
    weights = torch.randn(result.shape)
    result.backward(weights)
    theirs.backward(weights.to(place(device)))
    assert torch.ocl.fallbacks() == {}
    assert ours.grad.dtype is half
    assert relative(ours.grad.float(), exact.grad) < 2 * torch.finfo(half).eps


@pytest.mark.sampled(2)
@pytest.mark.parametrize("network", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_recurrent_networks_run_and_learn(device: Any, half: Any, network: Any) -> None:
    torch.manual_seed(3)
    model, x = network(5, 7), torch.randn(4, 2, 5)
    exact, _ = model(x)
    model.to(place(device))
    with torch.autocast("ocl", half):
        ours, _ = model(x.to(place(device)))
    assert ours.dtype is half
    assert relative(ours.float(), exact) < 4 * torch.finfo(half).eps
    ours.float().sum().backward()
    assert all(weight.grad.dtype is torch.float32 for weight in model.parameters())


def test_what_overflows_in_half_precision_is_refused(device: Any) -> None:
    chance = torch.full((3,), 0.25).to(place(device))
    with torch.autocast("ocl", torch.float16):
        with pytest.raises(RuntimeError, match=r"unsafe to autocast.*with_logits"):
            functional.binary_cross_entropy(chance, chance)
        with torch.autocast("ocl", enabled=False):
            loss = functional.binary_cross_entropy(chance, chance)
    assert_same(loss, functional.binary_cross_entropy(chance.cpu(), chance.cpu()))


class Product(Function):  # type: ignore[misc]
    """A product that asks for fp32, and notes whether its gradient is computed under autocast."""

    cast_backward: bool

    @staticmethod
    @torch.amp.custom_fwd(device_type="ocl", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="ocl")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        Product.cast_backward = torch.is_autocast_enabled("ocl")
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


def test_functions_of_a_user_choose_their_precision(device: Any) -> None:
    x, weight = learner(place(device))
    with torch.autocast("ocl", torch.bfloat16):
        product = Product.apply(x, weight)
        assert product.dtype is torch.float32
        product.sum().backward()
    assert not Product.cast_backward
    exact = x.float().cpu().sum(0)[:, None].expand(8, 8)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad.cpu(), exact, rtol=1e-5, atol=1e-5)
