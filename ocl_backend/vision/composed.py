"""torchvision's compiled operators, composed of torch's own, for any device and with gradients.

They serve the CPU where the compiled ones do not load. Arguments are as in
`ocl_backend.ops.vision`, whose kernels serve the device; nothing is registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from ocl_backend.ops.vision.deformable import check_offsets
from ocl_backend.ops.vision.regions import channel_mapping, pooled
from ocl_backend.ops.vision.suppression import check_boxes


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
        int64 [kept boxes].
    """
    check_boxes(boxes, scores)
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


def ps_roi_align(
    features: Tensor, rois: Tensor, scale: float, tall: int, wide: int, ratio: int
) -> tuple[Tensor, Tensor]:
    """Return bilinear samples averaged by bin, each bin of a channel of its own, and the channels.

    A product of matrices that mix rows and columns, per region and bin, as in `roi_align`.

    Args:
        features: floats [n, c, h, w].
        rois: [k, 5]: the number of an image, and a box's two corners.
        scale: items of `features` per unit of a corner.
        tall: bins along h.
        wide: bins along w.
        ratio: samples along each side of a bin; 0 or less: one per item of `features`.

    Returns:
        [k, c / bins, tall, wide], and int32 of that shape.
    """
    y = pooled(features, rois, (tall, wide), sensitive=True)
    boxes = rois[:, 1:] * scale - 0.5
    start, size = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    rows = _mixing(start[:, 1], size[:, 1], tall, features.shape[2], ratio)
    columns = _mixing(start[:, 0], size[:, 0], wide, features.shape[3], ratio)
    own = features.reshape(len(features), -1, tall, wide, *features.shape[2:])[rois[:, 0].long()]
    return torch.einsum("kph,kqw,kcpqhw->kcpq", rows, columns, own), channel_mapping(y)


def roi_pool(
    features: Tensor, rois: Tensor, scale: float, tall: int, wide: int
) -> tuple[Tensor, Tensor]:
    """Return the largest items by bin and their places in their plane: of rows, then of columns.

    Args:
        features: floats [n, c, h, w].
        rois: [k, 5]: the number of an image, and a box's two corners.
        scale: items of `features` per unit of a corner.
        tall: bins along h.
        wide: bins along w.

    Returns:
        [k, c, tall, wide], and int32 of that shape, -1 of an empty bin.
    """
    y, width = pooled(features, rois, (tall, wide), sensitive=False), features.shape[3]
    if not len(rois):
        return y, y.int()
    values, places = [], []
    for image, rows, columns in _bins(features, rois, scale, (tall, wide), extra=1, left_out=0):
        hidden = image.unsqueeze(2).masked_fill(~columns, -torch.inf)
        by_row, column = hidden.max(-1)
        by_bin, row = by_row.unsqueeze(1).masked_fill(~rows[:, :, None], -torch.inf).max(2)
        place = row * width + column.gather(1, row)
        empty = ~(rows.any(1)[:, None] & columns.any(1))
        values.append(by_bin.masked_fill(empty, 0))
        places.append(place.masked_fill(empty, -1).int())
    return torch.stack(values), torch.stack(places)


def ps_roi_pool(
    features: Tensor, rois: Tensor, scale: float, tall: int, wide: int
) -> tuple[Tensor, Tensor]:
    """Return the means of items by bin, each bin of a channel of its own, and the channels.

    Args:
        features: floats [n, c, h, w].
        rois: [k, 5]: the number of an image, and a box's two corners.
        scale: items of `features` per unit of a corner.
        tall: bins along h.
        wide: bins along w.

    Returns:
        [k, c / bins, tall, wide], and int32 of that shape.
    """
    y = pooled(features, rois, (tall, wide), sensitive=True)
    means = []
    for image, rows, columns in _bins(features, rois, scale, (tall, wide), extra=0, left_out=1):
        inside = (rows[:, None, :, None] & columns[None, :, None, :]).to(image.dtype)
        sums = (image.reshape(-1, tall, wide, *image.shape[1:]) * inside).sum((-2, -1))
        means.append(sums / inside.sum((-2, -1)).clamp(min=1))
    return (torch.stack(means) if means else y), channel_mapping(y)


def _bins(
    features: Tensor, rois: Tensor, scale: float, bins: tuple[int, int], extra: int, left_out: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield each region's image, and which rows and columns are in its bins, [bins, items]."""
    halves = rois[:, 1:] * scale
    corners = (halves.sign() * (halves.abs() + 0.5).floor()).tolist()  # C rounds halves away from 0
    for number, (left, top, right, bottom) in zip(rois[:, 0].long(), corners, strict=True):
        sides = []
        for begin, end, count, size in (
            (top, bottom, bins[0], features.shape[2]),
            (left, right, bins[1], features.shape[3]),
        ):
            step = rois.new_tensor(max(end - begin + extra, 1)) / count
            edges = torch.arange(count + 1, device=rois.device) * step
            low = (edges[:-1].floor() + begin).clamp(0, size - left_out)
            high = (edges[1:].ceil() + begin).clamp(0, size - left_out)
            item = torch.arange(size, device=rois.device)
            sides.append((item >= low[:, None]) & (item < high[:, None]))
        yield features[number], sides[0], sides[1]


def deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *numbers: int
) -> Tensor:
    """Return a convolution whose taps are moved: `grid_sample` at the taps, then a product.

    Args:
        x: floats [n, c, h, w].
        weight: [out channels, c / groups, kh, kw].
        offset: [n, 2 * offset groups * taps, oh, ow]: how each tap moves along h and w.
        mask: [n, offset groups * taps, oh, ow]: what it counts.
        bias: [out channels].
        numbers: stride, padding and dilation along h and w, groups of channels and of offsets, and
            whether the mask counts.

    Returns:
        [n, out channels, oh, ow].
    """
    sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask = numbers
    check_offsets(x, weight, offset, numbers[:-1])
    (n, c, height, width), (kh, kw), (oh, ow) = x.shape, weight.shape[2:], offset.shape[2:]
    moves = offset.reshape(n * offset_groups, kh, kw, 2, oh, ow)
    rows = torch.arange(oh, device=x.device) * sh - ph
    columns = torch.arange(ow, device=x.device) * sw - pw
    taps_y = torch.arange(kh, device=x.device).view(-1, 1, 1, 1) * dh
    taps_x = torch.arange(kw, device=x.device).view(-1, 1, 1) * dw
    at_y = moves[:, :, :, 0] + taps_y + rows.view(-1, 1)
    at_x = moves[:, :, :, 1] + taps_x + columns
    grid = torch.stack([(2 * at_x + 1) / width - 1, (2 * at_y + 1) / height - 1], -1)
    own = x.reshape(n * offset_groups, c // offset_groups, height, width)
    found = grid_sample(own, grid.flatten(1, 3).to(x.dtype), align_corners=False)
    found = found.view(n, offset_groups, c // offset_groups, kh * kw, oh * ow)
    if use_mask:
        found = found * mask.reshape(n, offset_groups, 1, kh * kw, oh * ow)
    weights = weight.reshape(groups, len(weight) // groups, -1)
    result = weights @ found.reshape(n, groups, weights.shape[-1], oh * ow)
    return result.view(n, len(weight), oh, ow) + bias.view(-1, 1, 1)


OPERATORS: dict[str, Callable[..., Any]] = {
    "nms": nms,
    "roi_align": roi_align,
    "ps_roi_align": ps_roi_align,
    "roi_pool": roi_pool,
    "ps_roi_pool": ps_roi_pool,
    "deform_conv2d": deform_conv2d,
}
"""Implementations by torchvision's name."""
