"""What users of torch.cuda expect of a device: layouts, dtypes, checkpoints, scaled gradients."""

from __future__ import annotations

import copy
import warnings
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from tests import torch_processes
from tests.ocl_backend.cpu_twin import place


def is_channels_last(x: Any) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def test_channels_last_is_kept_forward_and_backward(device: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.AvgPool2d(2),
    )  # fmt: skip
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    twin, y = copy.deepcopy(model).to(place(device)), x.detach().to(place(device)).requires_grad_()
    result = y
    for layer in twin:
        result = layer(result)
        assert is_channels_last(result), layer
    expected = model(x)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
    expected.square().sum().backward()
    result.square().sum().backward()
    assert is_channels_last(y.grad)
    torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-3, atol=1e-4)


def test_channels_last_weights_decide_too(device: Any) -> None:
    conv = torch.nn.Conv2d(3, 8, 3).to(place(device), memory_format=torch.channels_last)
    assert is_channels_last(conv(torch.randn(1, 3, 8, 8).to(place(device))))


def test_batch_norm_may_have_a_weight_alone(device: Any) -> None:
    norm = torch.nn.BatchNorm2d(3, bias=False)
    x = torch.randn(4, 3, 5, 5)
    twin = copy.deepcopy(norm).to(place(device))
    torch.testing.assert_close(twin(x.to(place(device))).cpu(), norm(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_draws_the_same_numbers_again(device: Any, reentrant: bool) -> None:
    x = torch.ones(200, device=place(device), requires_grad=True)
    drop = torch.nn.Dropout(0.5)
    y = checkpoint(lambda v: drop(v) * v, x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu() != 0, y.detach().cpu() != 0)


def test_the_scaler_skips_infinite_steps_without_the_cpu(device: Any) -> None:
    torch.ocl.reset_fallbacks()
    weight = torch.nn.Parameter(torch.ones(3, 4, device=place(device)))
    optimizer = torch.optim.SGD([weight], lr=0.25, foreach=True)
    scaler = torch.amp.GradScaler("ocl", init_scale=8.0, growth_interval=2)
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [8.0, 16.0, 8.0, 8.0]
    assert weight.detach().cpu().unique().tolist() == [0.25]
    assert torch.ocl.fallbacks() == {}


def test_the_summary_shows_figures_and_name(device: Any) -> None:
    held = torch.ones(1 << 20, device=place(device))
    text = torch.ocl.memory_summary(place(device))
    assert device.name in text
    assert "in tensors" in text
    assert held.numel() == 1 << 20
    assert torch.ocl.get_device_properties(place(device)).total_memory > held.nbytes


def test_capabilities_are_the_devices(device: Any) -> None:
    known = torch.ocl.get_device_capability(place(device))["supported_dtypes"]
    assert (torch.float64 in known) == ("cl_khr_fp64" in device.limits.extensions)
    if hasattr(torch.accelerator, "get_device_capability"):
        asked = torch.accelerator.get_device_capability(place(device))["supported_dtypes"]
        assert asked == known
    of_torch = {one for name in dir(torch) if isinstance(one := getattr(torch, name), torch.dtype)}
    for dtype in of_torch:
        refused = nullcontext() if dtype in known else pytest.raises((RuntimeError, TypeError))
        with refused:
            items = torch.empty(16, dtype=dtype, device=place(device))
            items.to(torch.float32).to(dtype)


@pytest.mark.usefixtures("any_device")
def test_float64_is_refused_at_creation_where_the_device_has_none() -> None:
    program = """
from oclgen.opencl.device import devices
object.__setattr__(devices()[0].limits, "extensions", frozenset())
import ocl_backend, torch
for make in (lambda: torch.ones(2, device="ocl", dtype=torch.float64),
             lambda: torch.ones(2, dtype=torch.float64).to("ocl")):
    try:
        make()
    except TypeError as error:
        print(error)
"""
    done = torch_processes.run(program)
    assert done.stdout.count("has no cl_khr_fp64: Double is not supported there") == 2, done.stderr


class OnDevice(Dataset[Any]):
    """Touches the device in its worker, which a forked one must not."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __len__(self) -> int:
        return 2

    def __getitem__(self, item: int) -> Any:
        return torch.full((1,), float(item), device=f"ocl:{self.index}").cpu()


def test_a_forked_worker_that_touches_the_device_is_told_to_spawn(device: Any) -> None:
    torch.ones(1, device=place(device))
    loader = torch.utils.data.DataLoader(
        OnDevice(device.index), num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="'spawn' method"):
        next(iter(loader))


def test_numpy_says_to_copy_first(device: Any) -> None:
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        torch.ones(2, device=place(device)).numpy()


OUTPUTS: dict[str, Any] = {
    "pointwise": lambda x, out: torch.exp(x, out=out),
    "product": lambda x, out: torch.mm(x, x, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "index": lambda x, out: torch.index_select(x, 0, torch.tensor([1], device=x.device), out=out),
    "range": lambda x, out: torch.arange(3, out=out),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_with_items_of_another_shape_is_resized_with_a_warning(
    device: Any, name: str
) -> None:
    for where in ("cpu", place(device)):
        x, out = torch.ones(4, 4, device=where), torch.ones(2, device=where)
        with pytest.warns(UserWarning, match=r"was resized since it had shape|will be resized"):
            OUTPUTS[name](x, out)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            OUTPUTS[name](x, out.resize_(0))
