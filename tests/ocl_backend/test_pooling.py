"""Pooling: windows that overlap, miss items, hang over the edge, or adapt."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn import functional

from ocl_backend.kernels import max_pool_rows
from ocl_backend.runtime.launch import prepare
from tests.ocl_backend.cpu_twin import check, place

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0), "ceil_mode": True},
]
SHAPES = [(2, 3, 13, 11), (3, 8, 8), (1, 1, 3, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_maximum(device: Any, window: dict[str, Any], shape: tuple[int, ...]) -> None:
    check(device, nn.MaxPool2d(**window), torch.randn(shape))


def test_maximum_dilated_and_in_one_dimension(device: Any) -> None:
    check(device, nn.MaxPool2d(3, stride=1, padding=1, dilation=2), torch.randn(2, 3, 9, 9))
    check(device, nn.MaxPool1d(3, stride=2), torch.randn(2, 3, 9))


def test_maximum_says_where_it_lay_and_a_nan_wins(device: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    x[0, 0, 3, 3] = float("nan")
    x[1] = 1.0  # ties: the first one counts
    y, indices = functional.max_pool2d(x, 3, 2, return_indices=True)
    ours, our_indices = functional.max_pool2d(x.to(place(device)), 3, 2, return_indices=True)
    torch.testing.assert_close(ours.cpu(), y, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(our_indices.cpu(), indices)


@pytest.mark.parametrize(
    ("dtype", "spatial"),
    [(torch.float32, 1), (torch.float32, 3), (torch.bfloat16, 2), (torch.int32, 2)],
    ids=str,
)
def test_a_window_of_padding_alone_has_the_lowest_number(
    device: Any, dtype: Any, spatial: int
) -> None:
    pool = getattr(functional, f"max_pool{spatial}d")
    x = (torch.randn([2, 3] + [4] * (spatial - 1) + [1]) * 4 - 8).to(dtype)
    ours = x.to(place(device)).requires_grad_(dtype.is_floating_point)
    y = pool(ours, 2, 1, 1, 2)
    assert torch.equal(y.detach().cpu(), pool(x, 2, 1, 1, 2))
    if dtype.is_floating_point:
        (grad,) = torch.autograd.grad(y, ours, torch.ones_like(y))
        assert not grad.any()


@pytest.mark.parametrize("channels", [3, 16, 21])
def test_windows_of_least_numbers_say_where_their_first_item_lies(
    device: Any, channels: int
) -> None:
    x = torch.randn(2, channels, 7, 9).masked_fill(torch.rand(2, channels, 7, 9) < 0.8, -torch.inf)
    x[0, :, 3, 4] = torch.nan
    pool = nn.MaxPool2d(3, 2, 1, return_indices=True)
    for images in (x, x.contiguous(memory_format=torch.channels_last)):
        for ours, theirs in zip(pool(images.to(place(device))), pool(images), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True, rtol=0, atol=0)


def test_channels_of_a_window_are_compared_twice_for_each_item(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third comparison, of whether there was an item before, takes a vector twice as long."""
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have other kernels")
    texts: list[str] = []

    def noted(number: int, text: str, *more: Any) -> Any:
        texts.append(text)
        return prepare(number, text, *more)

    monkeypatch.setattr(max_pool_rows, "prepare", noted)
    x = torch.randn(1, 18, 6, 5).contiguous(memory_format=torch.channels_last)
    nn.MaxPool2d((2, 3), (2, 1))(x.to(place(device)))
    (text,) = texts
    wins = [line for line in text.splitlines() if " wins = " in line]
    assert wins
    assert all("best_at" not in line and "||" not in line for line in wins)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_average(device: Any, window: dict[str, Any], counts: bool) -> None:
    check(device, nn.AvgPool2d(**window, count_include_pad=counts), torch.randn(2, 3, 13, 11))


def test_average_with_a_divisor_and_in_one_dimension(device: Any) -> None:
    check(device, nn.AvgPool2d(3, divisor_override=4), torch.randn(2, 3, 9, 9))
    check(device, nn.AvgPool1d(3, stride=2, padding=1), torch.randn(2, 3, 9))


@pytest.mark.parametrize("size", [1, 2, (6, 6), (5, None), 17], ids=str)
def test_adaptive_average(device: Any, size: Any) -> None:
    check(device, nn.AdaptiveAvgPool2d(size), torch.randn(2, 3, 13, 11))


def test_layouts_dtypes_and_nothing(device: Any) -> None:
    pool = nn.MaxPool2d(2)
    check(device, pool, torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))
    check(device, lambda x: pool(x.mT), torch.randn(2, 3, 8, 6))
    check(device, pool, torch.randn(2, 3, 8, 8).half())
    check(device, nn.AvgPool2d(2), torch.randn(2, 3, 8, 8).bfloat16(), tolerance=1e-2)
    check(device, pool, torch.randn(0, 3, 8, 8))


def test_no_images_are_pooled_to_sizes(device: Any) -> None:
    """A tensor without a batch may have no channels, a volume too."""
    check(device, nn.AdaptiveAvgPool1d(5), torch.randn(0, 10))
    check(device, nn.AdaptiveAvgPool2d(5), torch.randn(0, 6, 10))
    check(device, nn.AdaptiveAvgPool2d(5), torch.randn(0, 3, 6, 10))
    check(device, nn.AdaptiveAvgPool3d(5), torch.randn(0, 4, 6, 10))
    check(device, nn.AdaptiveMaxPool3d(2), torch.randn(0, 4, 6, 10))


VOLUMES: dict[str, nn.Module] = {
    "max": nn.MaxPool3d(3, 2, padding=1, dilation=(1, 2, 1), ceil_mode=True),
    "average": nn.AvgPool3d((2, 3, 2), (2, 1, 2), padding=1, count_include_pad=False),
    "average by divisor": nn.AvgPool3d(2, divisor_override=5),
    "adaptive average": nn.AdaptiveAvgPool3d((3, 4, 9)),
    "adaptive maximum": nn.AdaptiveMaxPool3d((3, 4, 2)),
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_three_dimensions(device: Any, kind: str) -> None:
    check(device, VOLUMES[kind], torch.randn(2, 3, 6, 7, 9))


def test_adaptive_maximum(device: Any) -> None:
    check(device, nn.AdaptiveMaxPool2d((5, 3)), torch.randn(2, 3, 13, 11).mT)
    check(device, nn.AdaptiveMaxPool1d(4), torch.randn(2, 3, 13))


def test_fractional_maximum(device: Any) -> None:
    samples = torch.rand(2, 3, 2)
    check(
        device,
        lambda x: functional.fractional_max_pool2d(x, 2, (4, 5), _random_samples=samples.to(x)),
        torch.randn(2, 3, 9, 8),
    )
    samples = torch.rand(2, 3, 3)
    check(
        device,
        lambda x: functional.fractional_max_pool3d(x, 2, (4, 5, 3), _random_samples=samples.to(x)),
        torch.randn(2, 3, 9, 8, 7),
    )


@pytest.mark.parametrize("shape", [(2, 4, 5, 6, 7), (4, 5, 6, 7)], ids=len)
def test_the_maximum_of_volumes_keeps_channels_last(device: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn((1,) * (5 - len(shape)) + shape).to(memory_format=torch.channels_last_3d)
    x = x if len(shape) == 5 else x[0]
    theirs = functional.max_pool3d(x, 2, return_indices=True)
    ours = functional.max_pool3d(x.to(place(device)), 2, return_indices=True)
    assert [y.stride() for y in ours] == [y.stride() for y in theirs]
    assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, theirs, strict=True))


def test_fractional_maxima_of_no_window(device: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    ours = x.to(place(device)).requires_grad_()
    none = functional.fractional_max_pool2d(ours, 2, (0, 1))
    none.sum().backward()
    assert none.shape == (2, 3, 0, 1)
    assert torch.equal(ours.grad.cpu(), torch.zeros_like(x))
    volumes = torch.randn(2, 3, 8, 8, 8, device=place(device))
    assert functional.fractional_max_pool3d(volumes, 2, (0, 1, 1)).shape == (2, 3, 0, 1, 1)


def test_a_maximum_put_back(device: Any) -> None:
    def there_and_back(x: Tensor) -> Tensor:
        y, indices = functional.max_pool3d(x, 2, return_indices=True)
        return functional.max_unpool3d(y, indices, (2, 2, 2))

    check(device, there_and_back, torch.randn(2, 3, 4, 6, 8))


@pytest.mark.parametrize("spatial", [2, 3])
def test_a_maximum_is_not_put_into_the_next_plane(device: Any, spatial: int) -> None:
    x = torch.randn([2, 3] + [1] * spatial, device=place(device))
    unpool = getattr(functional, f"max_unpool{spatial}d")
    torch.ocl.set_sync_errors(True)
    try:
        with pytest.raises(RuntimeError, match=rf"index {2**spatial} .* size {2**spatial}\b"):
            unpool(x, torch.full(x.shape, 2**spatial, device=x.device), 2)
    finally:
        torch.ocl.set_sync_errors(False)


FORMATS = ["planes", "channels last", "a view"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [3, 9, 24])
@pytest.mark.parametrize("form", FORMATS)
def test_maxima_of_volumes_in_every_layout(
    device: Any, form: str, channels: int, dtype: Any
) -> None:
    x = torch.randint(-3, 4, (2, channels, 7, 9, 20)).to(dtype)  # many are equal
    x[0, 0, 3, 4, 5] = x[0, 0, 2, 4, 6] = float("nan")
    x[1, 1] = -float("inf")
    ours = x.to(place(device))
    if form == "channels last":
        # torch itself stays with planes: in channels_last it says 0 for windows of -inf alone
        ours = ours.contiguous(memory_format=torch.channels_last_3d)
    elif form == "a view":
        x, ours = x[..., 1:18], ours[..., 1:18]
    x.requires_grad_(), ours.requires_grad_()
    window: dict[str, Any] = {"kernel_size": (2, 3, 3), "stride": (1, 2, 2), "padding": (1, 1, 0)}
    theirs, places = functional.max_pool3d(x, **window, return_indices=True)
    found, found_places = functional.max_pool3d(ours, **window, return_indices=True)
    assert torch.equal(found_places.cpu(), places)
    assert torch.equal(found.detach().cpu().nan_to_num(9), theirs.detach().nan_to_num(9))
    last = form == "channels last"
    assert found.is_contiguous(memory_format=torch.channels_last_3d) == last
    grad = torch.randint(-2, 3, theirs.shape).to(dtype)
    theirs.backward(grad)
    found.backward(grad.to(place(device)))
    assert torch.equal(ours.grad.cpu(), x.grad)


POOLS: list[Any] = [
    (nn.MaxPool2d(7), (1, 1, 45, 40)),
    (nn.MaxPool2d(2, stride=3, padding=1), (2, 17, 9, 20)),
    (nn.MaxPool2d(3, stride=2, padding=1), (2, 9, 30, 41)),
    (nn.MaxPool2d((2, 5), stride=(1, 2), dilation=(2, 1), padding=(1, 2)), (1, 16, 21, 33)),
    (nn.MaxPool2d(2, stride=1), (1, 1, 9, 9000)),
    (nn.AdaptiveMaxPool2d(4), (2, 20, 12, 16)),
    (nn.AdaptiveMaxPool2d((5, 7)), (1, 9, 13, 6)),
    (nn.AdaptiveMaxPool2d(1), (2, 8, 7, 5)),
]
"""Windows apart, with gaps, overlapping in long and in short rows; adaptive ones that tile and that
overlap, more of them than items."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("pool", "shape"), POOLS, ids=str)
def test_gradients_of_maxima_are_rounded_once(
    device: Any, pool: nn.Module, shape: tuple[int, ...], form: Any, dtype: Any
) -> None:
    """An item of several windows has the sum of their gradients in fp32."""
    x = torch.randn(shape).to(dtype).contiguous(memory_format=form)
    exact, ours = x.double().requires_grad_(), x.to(place(device)).requires_grad_()
    expected, y = pool(exact), pool(ours)
    grad = torch.randn(y.shape).to(dtype)
    expected.backward(grad.double())
    y.backward(grad.to(y.device))
    assert exact.grad is not None
    assert ours.grad is not None
    assert ours.grad.stride() == exact.grad.stride()
    bound = torch.finfo(dtype).eps * exact.grad.abs().max().item()
    torch.testing.assert_close(ours.grad.cpu().double(), exact.grad, rtol=0, atol=bound)
