"""Convolutions and all their gradients, plain and transposed, against the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from ocl_backend.dispatch import layouts as dispatch_layouts
from ocl_backend.dispatch.tuned import chooser, reload_tuned
from ocl_backend.ops.conv import apart_taps, convolution
from oclgen.families.conv import conv_gemm, conv_gemm_plan
from oclgen.families.winograd import winograd_pixels
from oclgen.problem import ConvProblem
from oclgen.variant import Variant
from tests.ocl_backend.cpu_twin import check, check_module, place
from tuned_db import NoVariantError

CASES = {
    "3x3": nn.Conv2d(4, 6, 3, padding=1),
    "no bias": nn.Conv2d(4, 6, 3, bias=False),
    "1x1": nn.Conv2d(4, 6, 1),
    "1x1 strided": nn.Conv2d(4, 6, 1, stride=2),
    "7x7 strided": nn.Conv2d(4, 6, 7, stride=2, padding=3),
    "uneven": nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2)),
    "groups": nn.Conv2d(4, 6, 3, groups=2),
    "depthwise": nn.Conv2d(4, 8, 3, groups=4, padding=1),
    "one filter each": nn.Conv2d(4, 4, 3, groups=4, padding=1),
    "transposed": nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
    "transposed groups": nn.ConvTranspose2d(4, 6, (2, 3), groups=2, dilation=2, bias=False),
    "same": nn.Conv2d(4, 6, (4, 3), padding="same"),
    "reflected": nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_against_the_cpu(device: Any, case: str) -> None:
    check_module(device, CASES[case], torch.randn(2, 4, 11, 9))


def test_one_dimension(device: Any) -> None:
    check_module(device, nn.Conv1d(4, 6, 3, stride=2, padding=1), torch.randn(2, 4, 11))
    check_module(device, nn.ConvTranspose1d(4, 6, 3, stride=2), torch.randn(2, 4, 5))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Conv1d(8, 12, 24, padding=12, groups=4), (8, 61)),
        (nn.Conv1d(1, 6, 33, stride=8), (1, 61)),
        (nn.Conv1d(4, 3, 17, stride=2, padding=9, dilation=3), (4, 61)),
        (nn.ConvTranspose1d(4, 6, 20, stride=5, padding=2, groups=2), (4, 61)),
        (nn.Conv2d(2, 5, (3, 18), stride=(2, 3), padding=(1, 4)), (2, 5, 61)),
    ],
)
def test_more_taps_than_are_written_out(
    device: Any, layer: nn.Module, sizes: tuple[int, ...]
) -> None:
    """Front ends of speech networks: a processor computes none of them by tiles of local memory."""
    x = torch.randn(2, *sizes)
    check_module(device, layer, x)
    if device.limits.kind == "cpu":
        moved, given = deepcopy(layer).to(place(device)), x.to(place(device)).requires_grad_()
        report = torch.ocl.explain(lambda: moved(given).sum().backward())
        assert {row.family for row in report.rows} == {"conv_register"}


def test_no_batch_dimension_and_no_items(device: Any) -> None:
    check_module(device, nn.Conv2d(4, 6, 3), torch.randn(4, 7, 7))
    check_module(device, nn.Conv2d(4, 6, 3), torch.randn(0, 4, 7, 7))
    nothing_left = nn.ConvTranspose3d(2, 4, (3, 3, 1), padding=(2, 3, 0), dilation=(1, 2, 2))
    check_module(device, nothing_left, torch.randn(2, 2, 7, 2, 4))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_narrow_storage(device: Any, dtype: Any, tolerance: float) -> None:
    layer = nn.Conv2d(4, 6, 3, padding=1).to(dtype)
    check_module(device, layer, torch.randn(2, 4, 8, 8).to(dtype), tolerance=tolerance)


def test_inputs_need_not_be_dense(device: Any) -> None:
    def convolve(x: Any, w: Any) -> Any:
        return torch.conv2d(x.mT, w.flip(2).transpose(0, 1))

    check(device, convolve, torch.randn(2, 4, 7, 9), torch.randn(4, 6, 3, 3))
    x = torch.randn(2, 4, 7, 9).to(memory_format=torch.channels_last)
    check(device, torch.conv2d, x, torch.randn(6, 4, 3, 3))


@pytest.fixture
def in_pixels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve channels_last as it lies wherever a family can, also on CPUs."""

    def served(index: int, pixels: ConvProblem, planes: ConvProblem) -> ConvProblem:
        try:
            chooser(index).choose(pixels)
        except NoVariantError:
            return planes
        return pixels

    monkeypatch.setattr(convolution, "better_known", served)
    monkeypatch.setattr(winograd_pixels, "conflict", lambda *_: None)
    monkeypatch.setattr(conv_gemm_plan, "layout_why_not", lambda *_: None)
    reload_tuned()
    yield
    reload_tuned()


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("in_pixels")
@pytest.mark.parametrize("case", CASES)
def test_channels_last_is_read_as_it_lies(device: Any, case: str) -> None:
    x = torch.randn(2, 4, 11, 9).to(memory_format=torch.channels_last)
    check_module(device, CASES[case], x)
    layer = deepcopy(CASES[case]).to(place(device))
    met = torch.ocl.explain(layer, x.to(place(device))).rows[0].problem
    # torch's circular padding makes planes; families of GPUs want one channel in and out of a group
    in_planes = {"reflected", "depthwise"} if device.limits.kind == "gpu" else {"reflected"}
    assert met.endswith(":nhwc") == (case not in in_planes)


@pytest.mark.usefixtures("in_pixels")
@pytest.mark.parametrize("case", ["3x3", "7x7 strided", "groups", "1x1 strided"])
def test_a_layer_in_channels_last_copies_no_image(device: Any, case: str) -> None:
    """Forward, and both gradients: kernels of the families alone, whichever the device prefers."""
    seen = trained(device, case)
    assert len(seen) >= 3
    assert {name for name in seen if not name.startswith(OF_FAMILIES)} == set()


def trained(device: Any, case: str) -> list[str]:
    """Return the kernels of a step of a layer in channels_last, without that of its bias."""
    layer: Any = deepcopy(CASES[case])
    layer = layer.to(place(device), memory_format=torch.channels_last)
    x = torch.randn(2, 4, 11, 9, device=place(device)).to(memory_format=torch.channels_last)
    grad = torch.ones_like(layer(x.requires_grad_()))

    def train() -> None:
        torch.autograd.grad(layer(x), [x, layer.weight], grad)

    train()
    with torch.ocl.profile(file=None) as seen:
        train()
    return [command.name for command in seen.commands]


OF_FAMILIES = ("winograd_", "gemm_", "conv_", "pack_", "packed_", "sum_planes")
"""What NVIDIA's devices run in place of others."""


def test_tf32_is_a_choice_and_off_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.randn(1, 8, 6, 6, device="ocl"), torch.randn(4, 8, 3, 3, device="ocl")
    assert torch.ocl.conv.allow_tf32 is False
    problems = [torch.ocl.explain(torch.conv2d, x, w).rows[0].problem]
    monkeypatch.setattr(torch.ocl.conv, "allow_tf32", True)
    problems.append(torch.ocl.explain(torch.conv2d, x, w).rows[0].problem)
    assert [":fp32:" in problem for problem in problems] == [True, False]
    assert ":tf32:" in problems[1]
    half = torch.ocl.explain(torch.conv2d, x.half(), w.half()).rows[-1]
    assert ":fp16:" in half.problem


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv3d(4, 6, (3, 2, 2), stride=(2, 1, 1), padding=1, dilation=(1, 2, 1), groups=2),
        nn.ConvTranspose3d(4, 6, 2, stride=2, padding=1, output_padding=1),
        nn.Conv3d(4, 6, 1),
        nn.Conv3d(4, 6, (1, 1, 3), stride=(1, 1, 2), padding=(0, 0, 1), groups=2),
        nn.ConvTranspose3d(4, 6, (1, 1, 2), stride=(1, 1, 2)),
        nn.Conv3d(4, 6, 3, padding=1),
        nn.Conv3d(4, 9, (2, 3, 3), padding=1, dilation=(2, 1, 1)),
        nn.Conv3d(4, 3, (1, 3, 3), padding=1),
        nn.ConvTranspose3d(4, 6, (3, 2, 2), stride=(1, 2, 1), padding=1),
    ],
    ids=[
        "plain", "transposed", "1x1x1", "rows", "transposed rows", "same", "many results",
        "wide margins", "transposed by one",
    ],
)  # fmt: skip
def test_three_dimensions(device: Any, layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    check_module(device, layer, torch.randn(2, 4, 5, 6, 4))
    check_module(device, layer, torch.randn(0, 4, 5, 6, 4))
    x = torch.randn(2, 4, 5, 6, 4).to(memory_format=torch.channels_last_3d)
    check_module(device, layer, x)
    # as where matrix units compute, which read channels_last alone
    monkeypatch.setattr(convolution, "_unfolds_pixels", lambda x: True)
    check_module(device, layer, torch.randn(2, 4, 5, 6, 4))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 1, stride=3),
        nn.Conv2d(4, 6, 1, stride=(1, 5), groups=2),
        nn.ConvTranspose2d(4, 6, 1, stride=3, output_padding=(1, 2)),
        nn.ConvTranspose2d(4, 6, 1, stride=(5, 1), bias=False),
        nn.Conv2d(4, 6, (2, 3), stride=3),
        nn.Conv2d(4, 6, 2, stride=(4, 3), dilation=(3, 2), groups=2),
        nn.ConvTranspose2d(4, 6, (1, 2), stride=(2, 3), output_padding=1),
    ],
)
def test_what_no_tap_meets_is_zero(
    device: Any, layer: Any, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU; here on any device."""

    def are_sparse(w: Any, shape: Any, stride: Any, *rest: Any) -> bool:
        return tuple(stride) != (1, 1)

    monkeypatch.setattr(apart_taps, "are_sparse", are_sparse)
    x = torch.randn(2, 4, 11, 9)
    check_module(device, layer, x.to(memory_format=torch.channels_last) if last else x)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(4, 6, 3, 2, 1), nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.ConvTranspose1d(4, 6, 3, 2)],
)
def test_phases_in_planes_are_computed_in_pixels(
    device: Any, layer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where matrix units compute: results lie as the images that were given."""
    layouts = []

    def other(device: int, first: ConvProblem, second: ConvProblem) -> ConvProblem:
        layouts.append((first.layout, second.layout))
        return second

    monkeypatch.setattr(dispatch_layouts, "is_for_matrix_units", lambda device, dtype: True)
    monkeypatch.setattr(convolution, "better_known", other)
    reload_tuned()
    try:
        check_module(device, layer, torch.randn(2, 4, *(11, 9)[: layer.weight.dim() - 2]))
    finally:
        reload_tuned()
    assert layouts == [("nchw", "nhwc")]


def test_short_rows_of_depthwise_layers_may_be_computed_in_pixels(device: Any) -> None:
    """Rows of few results leave lanes of a processor's vectors empty."""
    short = ConvProblem(1, 32, 9, 9, 32, 9, 9, 2, 2, 1, 1, groups=32)
    long = replace(short, width=99)
    on_cpu = device.limits.kind == "cpu"
    index = place(device).index
    assert dispatch_layouts.suits_pixels(index, short) == on_cpu
    assert dispatch_layouts.suits_pixels(index, replace(short, direction="bwd_data")) == (
        on_cpu and device.limits.native_float_width >= 18
    )
    for other in (long, replace(short, direction="bwd_weights"), replace(short, groups=1)):
        assert not dispatch_layouts.suits_pixels(index, other)
    check_module(device, nn.Conv2d(32, 32, 9, 2, 1, groups=32), torch.randn(1, 32, 9, 9))


def test_gradients_of_filters_may_be_summed_in_pixels(device: Any) -> None:
    """Blocks of Winograd's sums have channels in the lanes of a processor's vectors."""
    layer = ConvProblem(2, 32, 12, 12, 48, 3, 3, 1, 1, 1, 1, direction="bwd_weights")
    index = place(device).index
    assert dispatch_layouts.suits_pixels(index, layer) == (device.limits.kind == "cpu")
    for other in (replace(layer, stride_h=2), replace(layer, groups=2)):
        assert not dispatch_layouts.suits_pixels(index, other)
    check_module(device, nn.Conv2d(32, 48, 3, 1, 1), torch.randn(2, 32, 12, 12))


def test_a_gradient_of_weights_is_copied_too_unless_its_strides_are_free() -> None:
    layer = ConvProblem(1, 64, 7, 7, 32, 3, 3, 1, 1, 1, 1, direction="bwd_weights")
    stored, sums = (
        Variant("conv_gemm", replace(conv_gemm.DEFAULT, split_k=slices)) for slices in (1, 2)
    )
    in_last = replace(layer, layout="nhwc")
    assert dispatch_layouts.copied(layer, stored) == dispatch_layouts.copied(layer, sums) == "xyw"
    assert dispatch_layouts.copied(in_last, stored) == "xyw"
    assert dispatch_layouts.copied(in_last, sums) == "xy"
    for other in (replace(layer, direction="fwd"), replace(layer, kernel_h=1, kernel_w=1)):
        assert dispatch_layouts.copied(other, stored) == "xy"


@pytest.mark.parametrize("layer", [nn.Conv3d(4, 6, 3), nn.ConvTranspose3d(9, 4, 3)])
def test_three_dimensions_stay_in_their_memory_format(device: Any, layer: nn.Module) -> None:
    for given in (torch.contiguous_format, torch.channels_last_3d):
        x = torch.randn(2, layer.in_channels, 5, 6, 4).to(memory_format=given)
        x = x.to(place(device)).requires_grad_()
        y = deepcopy(layer).to(place(device))(x)
        y.backward(torch.ones_like(y))
        assert x.grad is not None
        assert all(one.is_contiguous(memory_format=given) for one in (y, x.grad))


def test_a_kernel_of_one_row_sees_frames_as_one_image(device: Any) -> None:
    """Nothing is unfolded, and channels_last stays."""
    x = torch.randn(2, 4, 5, 6, 4).to(place(device)).to(memory_format=torch.channels_last_3d)
    w = torch.randn(6, 4, 1, 1, 3).to(place(device))
    report = torch.ocl.explain(torch.conv3d, x, w)
    assert [row.problem.partition(":s")[0] for row in report.rows] == ["conv:2,4,30,4,6,1,3"]
    assert report.result.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 6, 3, 2, 1, groups=2), nn.ConvTranspose1d(4, 6, 3)])
def test_double_precision(device: Any, layer: nn.Module) -> None:
    if "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")
    sizes = (7, 6) if isinstance(layer, nn.Conv2d) else (7,)
    x = torch.randn(2, 4, *sizes, dtype=torch.float64)
    check_module(device, layer.double(), x, tolerance=1e-12)


def test_integers(device: Any) -> None:
    x, w = torch.randint(-9, 9, (2, 4, 7, 6)), torch.randint(-9, 9, (6, 2, 3, 2))
    ours = torch.conv2d(x.to(place(device)), w.to(place(device)), padding=1, groups=2)
    assert torch.equal(ours.cpu(), torch.conv2d(x, w, padding=1, groups=2))


def test_channels_that_do_not_fit_are_refused_in_the_forward_pass(device: Any) -> None:
    with pytest.raises(RuntimeError, match="channels"):
        nn.Conv2d(3, 2, 3).to(place(device))(torch.ones(1, 2, 5, 5, device=place(device)))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_gradient_of_another_size_is_refused(device: Any, rank: int, transposed: bool) -> None:
    x, w = torch.ones(1, 2, *[4] * rank), torch.ones(2, 2, *[3] * rank)
    grad = torch.ones(1, 2, *[4] * (rank - 1), 3)
    given = [one.to(place(device)) for one in (grad, x, w)]
    steps = [1] * rank, [1] * rank, [1] * rank, transposed, [0] * rank, 1, [True] * 3
    with pytest.raises(RuntimeError, match=r"4\], not .* 3\]"):
        torch.ops.aten.convolution_backward(*given, [2], *steps)
