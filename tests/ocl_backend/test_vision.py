"""torchvision's compiled operators: kernels of ours against compositions, and those against plain.

Beside a CPU build of torch torchvision has none, so the compositions are the CPU's operators.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

from torch import Tensor
from torch.nn.functional import conv2d

import ocl_backend  # noqa: F401 (lets torchvision be imported)
from ocl_backend.ops.vision import deformable
from ocl_backend.vision import composed
from tests.ocl_backend.cpu_twin import assert_same, check, ocl, place

ops = import_module("torchvision.ops")
compiled: Any = torch.ops.torchvision


def some_boxes(count: int) -> Tensor:
    torch.manual_seed(0)
    corner = torch.rand(count, 2) * 20
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * 12], 1)


def some_rois() -> Tensor:
    """Regions of two images, one of which is empty; the last ones leave their image."""
    corners = torch.cat(
        [some_boxes(3), torch.tensor([[-9.0, 5.0, 50.0, 70.0], [7.0, 7.0, 6.0, 6.0]])]
    )
    return torch.cat([torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0]).unsqueeze(1), corners], 1)


def one_by_one(given: Tensor, scores: Tensor, threshold: float) -> list[int]:
    overlap, kept = ops.box_iou(given, given), list[int]()
    for i in scores.argsort(descending=True).tolist():
        if all(overlap[i, j] <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_suppression_is_the_greedy_one(device: Any, threshold: float) -> None:
    given, scores = some_boxes(150), torch.rand(150)
    wanted = one_by_one(given, scores, threshold)
    assert ops.nms(given, scores, threshold).tolist() == wanted
    there = given.to(place(device)), scores.to(place(device))
    ocl.reset_fallbacks()
    assert ops.nms(*there, threshold).tolist() == wanted
    assert ops.nms(there[0][:0], there[1][:0], threshold).tolist() == []
    classes = torch.arange(150, device=place(device)) % 3
    assert (
        ops.batched_nms(*there, classes, threshold).tolist()
        == ops.batched_nms(given, scores, classes.cpu(), threshold).tolist()
    )
    assert ocl.fallbacks() == {}


POOLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "align": lambda x, rois: ops.roi_align(x, rois, (3, 2), 0.5, -1, aligned=False),
    "align, whole items": lambda x, rois: ops.roi_align(x, rois, (2, 3), 0.7, 2, aligned=True),
    "align, by position": lambda x, rois: ops.ps_roi_align(x, rois, (3, 2), 0.5, -1),
    "largest": lambda x, rois: ops.roi_pool(x, rois, (3, 2), 0.5),
    "mean, by position": lambda x, rois: ops.ps_roi_pool(x, rois, (3, 2), 0.5),
}


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize("channels_last", [False, True])
def test_pooled_regions(device: Any, name: str, channels_last: bool) -> None:
    x, rois = torch.randn(2, 12, 20, 24), some_rois()
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    inside = rois[:3] if "by position" in name else rois
    check(device, lambda x: POOLED[name](x, inside.to(x.device)), x)


DEFINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "align, by position": lambda x, rois: composed.ps_roi_align(x, rois, 0.5, 3, 2, -1)[0],
    "mean, by position": lambda x, rois: composed.ps_roi_pool(x, rois, 0.5, 3, 2)[0],
}
"""What the device computes, where torchvision's compiled operators are NaN for a region without
items, and have gradients for rows that their means leave out."""


@pytest.mark.parametrize("name", DEFINED)
def test_regions_that_leave_their_image_by_position(device: Any, name: str) -> None:
    rois = some_rois()

    def pooled(x: Tensor) -> Tensor:
        return (DEFINED if x.device.type == "cpu" else POOLED)[name](x, rois.to(x.device))

    check(device, pooled, torch.randn(2, 12, 20, 24))


def test_aligned_regions_are_as_torchvisions_python_has_them() -> None:
    """Which the compiled operators follow inside of the image."""
    theirs = import_module("torchvision.ops.roi_align")._roi_align.__wrapped__
    x, rois = torch.randn(2, 3, 20, 24), some_rois()[:3]
    wanted = theirs(x, rois, 0.5, 3, 2, 2, False)
    torch.testing.assert_close(composed.roi_align(x, rois, 0.5, 3, 2, 2, False), wanted)


@pytest.mark.parametrize(("groups", "channels"), [(1, 6), (2, 4), (1, 8), (1, 32)])
def test_convolution_of_moved_taps(device: Any, groups: int, channels: int) -> None:
    """With two groups of offsets, a mask, strides and dilation; all five gradients.

    On processors, channels of one group lie last and are read by vectors of 1, 4 and 16.
    """
    torch.manual_seed(0)
    x, weight = torch.randn(2, channels, 9, 8), torch.randn(6, channels // groups, 3, 2)
    offset, mask = torch.randn(2, 2 * 2 * 6, 5, 8) * 2, torch.rand(2, 2 * 6, 5, 8)
    numbers: dict[str, Any] = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 2)}
    check(
        device,
        lambda x, o, w, b, m: ops.deform_conv2d(x, o, w, b, mask=m, **numbers),
        *(x, offset, weight, torch.randn(6), mask),
    )
    still = ops.deform_conv2d(
        *(t.to(place(device)) for t in (x, torch.zeros_like(offset), weight)), **numbers
    )
    assert_same(still, conv2d(x, weight, **numbers, groups=groups))


@pytest.mark.parametrize("way", ["planes", "rows", "atomics"])
def test_each_way_to_sample_gives_the_same(
    device: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Processors read rows of channels, devices with other memories planes."""
    if way == "rows" and device.limits.kind == "gpu":
        pytest.skip("owners of rows are for processors")
    if way != "rows":
        monkeypatch.setattr(deformable.DeformableArguments, "width", lambda *_: 0)
    if way == "atomics":
        monkeypatch.setattr(deformable, "owned_parts", lambda *_: 0)
    torch.manual_seed(1)
    x, offset, weight = torch.randn(2, 8, 6, 5), torch.randn(2, 8, 5, 4), torch.randn(3, 8, 2, 2)
    check(device, ops.deform_conv2d, x, offset, weight)


def test_under_autocast_and_in_half_precision(device: Any) -> None:
    x, rois = torch.randn(2, 3, 20, 24), some_rois()[:3]
    there = x.half().to(place(device)), rois.to(place(device))
    wanted = ops.roi_align(x.half().float(), rois, (3, 2), 0.5)
    with torch.autocast("ocl", dtype=torch.float16):
        ours = ops.roi_align(*there, (3, 2), 0.5)
    assert_same(ours.float(), wanted, 2e-3)
    plain = ops.roi_align(there[0], there[1].half(), (3, 2), 0.5)
    assert_same(plain.float(), wanted, 2e-2)


def test_wrong_calls(device: Any) -> None:
    x, rois = torch.randn(1, 4, 8, 8, device=place(device)), torch.zeros(1, 5, device=place(device))
    with pytest.raises(RuntimeError, match="multiple of pooling height"):
        ops.ps_roi_align(x, rois, (3, 2))
    with pytest.raises(RuntimeError, match="same type as"):
        ops.roi_align(x, rois.half(), (3, 2))
    with pytest.raises(RuntimeError, match="5, 6"):
        ops.deform_conv2d(x, x.new_zeros(1, 18, 5, 6), x.new_zeros(2, 4, 3, 3))
    with pytest.raises(torch.AcceleratorError, match=r"roi: image 1 is out of bounds .* size 1"):
        ops.roi_align(x, rois + 1, (3, 2)).cpu()
    with pytest.raises(RuntimeError, match="boxes"):
        compiled.nms(rois, rois[:, 0], 0.5)
