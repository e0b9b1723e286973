"""What detectors need of torchvision's compiled operators, against the plain way."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

from torch import Tensor

from ocl_backend import boxes
from ocl_backend.interop import torchvision_models
from tests.ocl_backend.cpu_twin import check, place

torchvision_models()
box_iou = import_module("torchvision.ops").box_iou


def some_boxes(count: int) -> Tensor:
    torch.manual_seed(0)
    corner = torch.rand(count, 2) * 20
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * 12], 1)


def one_by_one(given: Tensor, scores: Tensor, threshold: float) -> list[int]:
    overlap, kept = box_iou(given, given), list[int]()
    for i in scores.argsort(descending=True).tolist():
        if all(overlap[i, j] <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_suppression_is_the_greedy_one(device: Any, threshold: float) -> None:
    if device.index:
        pytest.skip("composed of operators that run on every device")
    given, scores = some_boxes(60), torch.rand(60)
    ours = boxes.nms(given.to(place(device)), scores.to(place(device)), threshold)
    assert ours.tolist() == one_by_one(given, scores, threshold)
    assert boxes.nms(given[:0], scores[:0], threshold).tolist() == []


@pytest.mark.parametrize("ratio", [2, -1])
def test_aligned_regions(device: Any, ratio: int) -> None:
    """As torchvision's own Python, which its compiled operators follow inside of the image."""
    if device.index:
        pytest.skip("composed of operators that run on every device")
    theirs = import_module("torchvision.ops.roi_align")._roi_align.__wrapped__
    rois = torch.cat([torch.tensor([[1.0], [0.0], [1.0]]), some_boxes(3)], 1)
    x = torch.randn(2, 3, 20, 24)
    wanted = theirs(x, rois, 0.5, 3, 2, ratio, False)
    torch.testing.assert_close(boxes.roi_align(x, rois, 0.5, 3, 2, ratio, False), wanted)
    check(device, lambda x: boxes.roi_align(x, rois.to(x.device), 0.5, 3, 2, ratio, False), x)
