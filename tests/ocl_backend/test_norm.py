"""Batch, layer and group normalisation: statistics, gradients, running averages, both divisions."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from ocl_backend.kernels import batch_norm_kernels
from ocl_backend.kernels.memory_formats import FORMATS
from ocl_backend.ops.norm import batch_norm
from oclgen.limits import Limits
from tests.ocl_backend.cpu_twin import agree, assert_same, check, check_module, place
from tests.ocl_backend.fusion_cases import names

BATCH_SHAPES = [(8, 6, 7, 7), (3, 5, 4, 4), (5, 7), (16, 3, 33), (2, 4, 20, 20)]
PIXEL_SHAPES = [(8, 6, 7, 7), (2, 70, 5, 9), (1, 32, 1, 4), (3, 5, 2, 3, 4)]
TOLERANCE = 3e-5


def test_a_divisor_divides_every_number() -> None:
    for number in (1, 2, 3, 7, 49, 641, 3136, 12544, 2**16 + 1, 2**31 - 1):
        factor, shift = batch_norm_kernels.divisor(number)
        assert factor < 2**32
        for i in {0, 1, number - 1, number, 10 * number - 1, 2**31 - 2, 2**31 - 1}:
            if i < 2**31:
                assert (2 * i * factor >> 32) >> shift == i // number, (i, number)


def filled(module: Any) -> Any:
    for parameter in module.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    return module


def batch_norm_for(shape: tuple[int, ...], **options: Any) -> Any:
    kind = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}.get(len(shape), nn.BatchNorm1d)
    return filled(kind(shape[1], **options))


@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", BATCH_SHAPES, ids=str)
def test_batch_norm(device: Any, shape: tuple[int, ...], trains: bool) -> None:
    module = batch_norm_for(shape).train(trains)
    check_module(device, module, torch.randn(shape) * 3 + 10, tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("trains", [True, False])
def test_batch_norm_with_wider_statistics(device: Any, dtype: Any, trains: bool) -> None:
    """CUDA takes weights of 16 bits beside statistics in fp32, as FSDP2 leaves them."""
    found = []
    for weights in (dtype, torch.float32):
        module: Any = nn.BatchNorm2d(3).to(place(device)).train(trains)
        module.weight.data = torch.tensor([0.5, 1.25, 1.5], device=place(device))
        for param in module.parameters():
            param.data = param.to(weights)
        x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
        x = x.to(place(device)).requires_grad_()
        module(x).float().sin().sum().backward()
        assert module.weight.grad.dtype is weights
        assert module.running_mean.dtype is torch.float32
        found.append([module.running_var, x.grad, module.weight.grad.to(dtype)])
    for narrow, wide in zip(*found, strict=True):
        assert torch.equal(narrow, wide)


@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("options", [(False, True), (True, False), (False, False)], ids=str)
def test_batch_norm_without_parameters_or_averages(
    device: Any, options: tuple[bool, bool], trains: bool
) -> None:
    affine, tracks = options
    module = nn.BatchNorm1d(5, affine=affine, track_running_stats=tracks).train(trains)
    check_module(device, module, torch.randn(4, 5, 9) * 3 + 10, tolerance=TOLERANCE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("average", [True, False], ids=["average", "none"])
def test_batch_norm_with_a_bias_alone(device: Any, average: bool, trains: bool) -> None:
    def normed(x: Any, bias: Any) -> Any:
        mean, var = (x.new_full((6,), one) if average else None for one in (0.5, 2.0))
        return nn.functional.batch_norm(x, mean, var, None, bias, trains or not average)

    check(device, normed, torch.randn(4, 6, 5), torch.randn(6), tolerance=TOLERANCE)


@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kept", [0, 32])
@pytest.mark.parametrize("shape", BATCH_SHAPES, ids=str)
def test_batch_norm_divided_as_on_a_gpu(
    device: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], kept: int, trains: bool
) -> None:
    monkeypatch.setattr(batch_norm_kernels, "KEPT_ITEMS", kept)
    divide = batch_norm_kernels.division
    local = min(64, device.limits.max_work_group)
    gpu = replace(Limits(), kind="gpu", compute_units=4, max_work_group=local)
    monkeypatch.setattr(batch_norm_kernels, "division", lambda kind, limits: divide(kind, gpu))
    batch_norm.rule_of.cache_clear()
    module = batch_norm_for(shape).train(trains)
    check_module(device, module, torch.randn(shape) * 3 + 10, tolerance=TOLERANCE)
    batch_norm.rule_of.cache_clear()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", PIXEL_SHAPES, ids=str)
def test_batch_norm_reads_channels_last_as_it_lies(
    device: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], kind: Any, trains: bool
) -> None:
    divide, local = batch_norm_kernels.division_of_pixels, min(64, device.limits.max_work_group)
    like = replace(Limits(), kind=kind, compute_units=1, max_work_group=local)
    monkeypatch.setattr(
        batch_norm_kernels, "division_of_pixels", lambda kind, limits: divide(kind, like)
    )
    monkeypatch.setattr(batch_norm_kernels, "MOST_ROWS", 40)
    batch_norm.rule_of.cache_clear()
    module = batch_norm_for(shape).train(trains)
    x = (torch.randn(shape) * 3 + 10).contiguous(memory_format=FORMATS[len(shape)])
    check_module(device, module, x, tolerance=TOLERANCE)
    twin, ours = module.to(place(device)), x.to(place(device)).requires_grad_()
    grad = torch.ones_like(ours)
    with torch.ocl.profile(file=None) as seen:
        torch.autograd.grad(twin(ours), ours, grad)
    assert {command.name for command in seen.commands} >= {"batch_norm_fwd", "batch_norm_bwd"}
    assert not any("copy" in command.name for command in seen.commands)
    batch_norm.rule_of.cache_clear()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_statistics_in_one_pass_bear_a_large_mean_and_an_outlier(
    device: Any, monkeypatch: pytest.MonkeyPatch, memory_format: Any
) -> None:
    divide = batch_norm_kernels.division
    local = min(64, device.limits.max_work_group)
    gpu = replace(Limits(), kind="gpu", compute_units=4, max_work_group=local)
    monkeypatch.setattr(batch_norm_kernels, "division", lambda kind, limits: divide(kind, gpu))
    monkeypatch.setattr(batch_norm_kernels, "KEPT_ITEMS", 0)
    batch_norm.rule_of.cache_clear()
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0)) + 1000
    x[0, 0, 0, 0] = -1e4
    mean, var = torch.zeros(3).to(place(device)), torch.ones(3).to(place(device))
    x = x.contiguous(memory_format=memory_format)
    nn.functional.batch_norm(x.to(place(device)), mean, var, training=True, momentum=1.0)
    exact = x.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean.cpu().double(), exact.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(var.cpu().double(), exact.var(1), rtol=1e-4, atol=0)
    batch_norm.rule_of.cache_clear()


def test_batch_norm_with_cumulative_averages_over_several_batches(device: Any) -> None:
    module = nn.BatchNorm2d(4, momentum=None)
    twin = deepcopy(module).to(place(device))
    for _ in range(2):
        x = torch.randn(3, 4, 5, 5) + 2
        module(x)
        twin(x.to(place(device)))
    assert twin.running_var is not None
    assert twin.num_batches_tracked is not None
    torch.testing.assert_close(twin.running_var.cpu(), module.running_var, rtol=1e-5, atol=1e-5)
    assert int(twin.num_batches_tracked) == 2


def test_batch_norm_of_narrow_items_with_wide_parameters(device: Any) -> None:
    x = torch.randn(4, 6, 5, 5)
    module = batch_norm_for(x.shape)
    expected = module(x.bfloat16().float())
    twin = batch_norm_for(x.shape)
    twin.load_state_dict(module.state_dict())
    ours = twin.to(place(device))(x.bfloat16().to(place(device)))
    assert ours.dtype is torch.bfloat16
    torch.testing.assert_close(ours.cpu().float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}], ids=str)
@pytest.mark.parametrize(
    ("shape", "normalized"),
    [((4, 7, 64), (64,)), ((3, 33), (33,)), ((70, 5, 6), (5, 6)), ((1, 8), (8,))],
)
def test_layer_norm(
    device: Any, shape: tuple[int, ...], normalized: tuple[int, ...], options: dict[str, Any]
) -> None:
    module = filled(nn.LayerNorm(normalized, **options))
    check_module(device, module, torch.randn(shape) * 2 + 5, tolerance=TOLERANCE)


def test_layer_norm_of_rows_of_millions_of_items_is_as_right_as_of_short_ones(device: Any) -> None:
    x = torch.rand(1, 1 << 22, generator=torch.Generator().manual_seed(3))
    grad = torch.rand(x.shape, generator=torch.Generator().manual_seed(4))
    wanted = x.double().requires_grad_()
    y = nn.functional.layer_norm(wanted, x.shape[1:])
    y.backward(grad.double())
    there = x.to(place(device)).requires_grad_()
    found = nn.functional.layer_norm(there, x.shape[1:])
    found.backward(grad.to(place(device)))
    assert wanted.grad is not None and there.grad is not None
    torch.testing.assert_close(found.detach().cpu().double(), y.detach(), atol=5e-6, rtol=0)
    torch.testing.assert_close(there.grad.cpu().double(), wanted.grad, atol=1e-5, rtol=0)


def test_group_norm(device: Any) -> None:
    check_module(device, filled(nn.GroupNorm(3, 6)), torch.randn(4, 6, 5, 7), tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_group_norm_of_planes_of_any_size(device: Any, dtype: Any) -> None:
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 1e-1}.get(dtype, TOLERANCE)
    for shape, groups in (((6, 6, 3, 3), 2), ((8, 8, 5, 5), 4), ((3, 6, 31), 3), ((9, 4, 70), 1)):
        torch.manual_seed(2)
        x, weight, bias = torch.randn(shape), torch.rand(shape[1]), torch.rand(shape[1])
        given = [each.to(dtype) for each in (x, weight, bias)]

        def normed(x: Any, weight: Any, bias: Any, groups: int = groups) -> Any:
            return nn.functional.group_norm(x, groups, weight, bias)

        check(device, normed, *given, tolerance=tolerance)
        check(device, lambda x, groups=groups: nn.functional.group_norm(x, groups), given[0],
              tolerance=tolerance)  # fmt: skip


def test_group_norm_of_a_processor_is_one_launch_and_two_backward(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs share a group among work-items")
    batch = device.limits.compute_units
    x = torch.randn(batch, 6, 5, 7, device=place(device), requires_grad=True)
    layer = nn.GroupNorm(3, 6).to(place(device))
    y = layer(x)
    leaves = x, layer.weight, layer.bias
    torch.autograd.grad(y, leaves, y, retain_graph=True)
    assert names(lambda: layer(x)) == ["group_norm_fwd"]
    found = names(lambda: torch.autograd.grad(y, leaves, y, retain_graph=True))
    assert found == ["group_norm_bwd", "group_norm_parameters_kernel"]


@pytest.mark.parametrize("shape", [(2, 4, 0), (0, 4, 3), (0, 4, 0), (2, 4, 0, 3)], ids=str)
def test_gradients_of_a_group_norm_of_nothing(device: Any, shape: tuple[int, ...]) -> None:
    def normed(x: Any, weight: Any, bias: Any) -> Any:
        return nn.functional.group_norm(x, 2, weight, bias)

    check(device, normed, torch.randn(shape), torch.ones(4), torch.ones(4))


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_takes_channels_last(device: Any, affine: bool) -> None:
    x = torch.randn(4, 6, 5, 7).contiguous(memory_format=torch.channels_last)
    module = nn.GroupNorm(3, 6, affine=affine)
    check_module(device, filled(module) if affine else module, x, tolerance=TOLERANCE)
    twin = deepcopy(module).to(place(device))
    assert twin(x.to(place(device))).is_contiguous(memory_format=torch.channels_last)
    assert twin(x[:0].to(place(device))).shape == (0, 6, 5, 7)


@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_weights_of_a_norm_and_their_gradients(device: Any, dim: Any) -> None:
    """torch composes the middle dimension and the whole; the others have operators of their own."""
    torch.manual_seed(0)
    layer = weight_norm(nn.Conv1d(5, 6, 3), dim=dim)
    check_module(device, layer, torch.randn(2, 5, 9), tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_lengths_of_weights_have_the_cpus_dtype(device: Any, dtype: Any) -> None:
    v, g = torch.randn(4, 5, 6, dtype=dtype), torch.rand(4, 1, 1, dtype=dtype) + 0.5
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, TOLERANCE)
    agree(device, torch._weight_norm_interface, v, g, tolerance=tolerance)
    check(device, lambda v, g: torch._weight_norm_interface(v, g)[0], v, g, tolerance=tolerance)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("strided", range(4))
def test_batch_norm_with_parameters_that_are_columns(
    device: Any, strided: int, train: bool
) -> None:
    """Weight, bias and both running statistics may be columns; in training two are written."""
    torch.manual_seed(0)
    x, found = torch.randn(3, 5, 4, 4), []
    given = [torch.rand(5) + 0.5 for _ in range(4)]
    for where in ("cpu", place(device)):
        parts = [part.to(where, copy=True) for part in given]
        table = torch.full((5, 2), torch.nan, device=where)
        table[:, 1] = parts[strided]
        parts[strided] = table[:, 1]
        own = x.to(where, copy=True).requires_grad_()
        weight, bias, mean, variance = parts
        leaves = [own, *(part.requires_grad_() for part in (weight, bias) if part.is_leaf)]
        y = torch.nn.functional.batch_norm(own, mean, variance, weight, bias, training=train)
        grads = torch.autograd.grad(y.sin().sum(), leaves)
        found.append([y, mean, variance, *grads])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_of_doubles_has_an_eps_and_a_momentum_of_doubles(
    device: Any, layout: Any
) -> None:
    x = torch.zeros(2, 3, 2, 2, dtype=torch.float64)
    x[0] = 1e-3
    found = []
    for where in ("cpu", place(device)):
        own = x.to(where, memory_format=layout, copy=True).requires_grad_()
        mean, variance = (torch.ones(3, dtype=x.dtype, device=where) for _ in range(2))
        for train in (True, False):
            y = torch.nn.functional.batch_norm(own, mean, variance, training=train, eps=1e-5 / 3)
            y.sin().sum().backward()
            found.append([t.detach().to("cpu", copy=True) for t in (y, own.grad, mean, variance)])
    for ours, wanted in zip(found[2:], found[:2], strict=True):
        assert_same(ours, wanted, tolerance=1e-12)


def test_batch_norm_refuses_parameters_that_are_no_vectors(device: Any) -> None:
    where = place(device)
    x, ones, column = (torch.ones(s, device=where) for s in ((2, 3, 4), (3,), (3, 1)))
    for given in ([column, ones], [ones, column]):
        with pytest.raises(RuntimeError, match="expected 1 dims"):
            torch.nn.functional.batch_norm(x, *given, training=True)
    y = torch.nn.functional.batch_norm(x.requires_grad_(), ones, ones, column, ones)
    with pytest.raises(RuntimeError, match="expected 1 dims"):
        y.sum().backward()
