"""The two operators of torchvision that detectors need, composed of torch's own.

They serve any device where torchvision's compiled ones are missing; nothing is registered here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the positions, best first, of the boxes [n, 4] that no better one overlaps too much.

    A box falls to a better one that stands, by the areas' intersection over union. All are decided
    at once, again and again until nothing changes: the best i are right after i rounds, most often
    all of them after a few.

    Args:
        boxes: floats [n, 4], two corners each.
        scores: floats [n]; of equal ones the first is better.
        iou_threshold: the largest intersection over union that both boxes survive.

    Returns:
        int64 [boxes that stand].
    """
    order = scores.argsort(descending=True, stable=True)
    corners = boxes[order]
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (corners[:, 2:] - corners[:, :2]).prod(-1)
    overlaps = (shared / (areas[:, None] + areas - shared) > iou_threshold).triu(1)
    stands = torch.ones_like(order, dtype=torch.bool)
    while True:
        decided = (overlaps & stands[:, None]).any(0).logical_not()
        if torch.equal(decided, stands):
            return order[stands]
        stands = decided


def roi_align(
    features: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return bilinear samples of images, averaged by bin (He et al. 2017, "Mask R-CNN").

    Samples lie on a grid, so rows and columns are mixed by one matrix each, per box: two products.

    Args:
        features: floats [n, c, h, w].
        rois: [k, 5]: the number of an image, and a box's two corners.
        spatial_scale: items of `features` per unit of a corner.
        pooled_height: bins along h.
        pooled_width: bins along w.
        sampling_ratio: samples along each side of a bin; 0 or less: one per item of `features`.
        aligned: whether item 0 has its centre at 0.5; if not, boxes are at least one item wide.

    Returns:
        [k, c, pooled_height, pooled_width].
    """
    boxes = rois[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    start, size = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    size = size if aligned else size.clamp(min=1)
    height, width = features.shape[2:]
    rows = _mixing(start[:, 1], size[:, 1], pooled_height, height, sampling_ratio)
    columns = _mixing(start[:, 0], size[:, 0], pooled_width, width, sampling_ratio)
    places, parts = [], []
    for number, image in enumerate(features):
        own = (rois[:, 0] == number).nonzero().squeeze(1)
        lines = rows[own].flatten(0, 1) @ image.transpose(0, 1).flatten(1)
        lines = lines.view(len(own), pooled_height, len(image), width) @ columns[own].mT.unsqueeze(
            1
        )
        places.append(own)
        parts.append(lines.transpose(1, 2))
    return torch.cat(parts)[torch.cat(places).argsort()]


def _mixing(start: Tensor, size: Tensor, bins: int, length: int, ratio: int) -> Tensor:
    """Return [k, bins, length]: how much each line of an image counts in each bin of each box."""
    step = size / bins
    counts = torch.full_like(step, ratio) if ratio > 0 else step.ceil()
    most = ratio if ratio > 0 else int(counts.max()) if len(counts) else 0
    sample = torch.arange(max(most, 1), device=start.device)
    inside = (sample < counts[:, None])[:, None]
    counts = counts.clamp(min=1)[:, None, None]
    bin_number = torch.arange(bins, device=start.device)[:, None]
    at = start[:, None, None] + step[:, None, None] * (bin_number + (sample + 0.5) / counts)
    inside = inside & (at >= -1) & (at <= length)
    lines = torch.arange(length, device=start.device)
    weights = (1 - (at.clamp(0, length - 1).unsqueeze(-1) - lines).abs()).clamp(min=0)
    return (weights * inside.unsqueeze(-1)).sum(-2) / counts


OPERATORS: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "nms": ("(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor", nms),
    "roi_align": (
        "(Tensor features, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor",
        roi_align,
    ),
}
"""Signatures and implementations by torchvision's name."""
