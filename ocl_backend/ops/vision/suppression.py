"""Suppression of boxes that a better one overlaps, greedily: torchvision's `nms`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.vectors import in_type
from ocl_backend.runtime.launch import Argument, KernelLaunch, Pointer, Varying, prepare
from oclgen.opencl.device import devices
from oclgen.render import render

WORD = 64
"""Boxes that an item of the table of overlaps tells of, a bit each."""

BODY = """\
const T left = LOAD_box(box_at + 4 * row), top = LOAD_box(box_at + 4 * row + 1);
const T right = LOAD_box(box_at + 4 * row + 2), bottom = LOAD_box(box_at + 4 * row + 3);
const T area = (right - left) * (bottom - top);
const long begin = word * 64;
const long end = min(begin + 64, count);
long bits = 0;
for (long other = max(begin, row + 1); other < end; ++other) {
    const long at = box_at + 4 * other;
    const T x0 = LOAD_box(at), y0 = LOAD_box(at + 1);
    const T x1 = LOAD_box(at + 2), y1 = LOAD_box(at + 3);
    const T wide = fmax(fmin(right, x1) - fmax(left, x0), 0);
    const T shared = wide * fmax(fmin(bottom, y1) - fmax(top, y0), 0);
    if (shared / (area + (x1 - x0) * (y1 - y0) - shared) > limit)
        bits |= 1L << (other - begin);
}
"""


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the positions, best first, of the boxes that no better one overlaps too much.

    Args:
        boxes: floats [n, 4], two corners each.
        scores: floats [n]; of equal ones the first is better.
        iou_threshold: the largest intersection over union that both boxes survive.

    Returns:
        int64 [kept boxes].

    Raises:
        RuntimeError: the shapes do not fit.
    """
    check_boxes(boxes, scores)
    count = len(scores)
    order = scores.argsort(descending=True, stable=True)
    words = -(-count // WORD)
    overlaps = torch.empty(count, words, dtype=torch.int64, device=boxes.device)
    stands = torch.empty(count, dtype=torch.bool, device=boxes.device)
    fallen = torch.empty(words, dtype=torch.int64, device=boxes.device)
    if count:
        given = (boxes[order], overlaps, count, iou_threshold)
        walked = {"box": (0, 0), "row": (1, 0), "word": (0, 1)}
        launch(_overlaps(boxes.dtype), overlaps.shape, given, walked)
        sweep = _sweep(boxes.get_device())
        sweep(overlaps.data_ptr(), fallen.data_ptr(), stands.data_ptr(), count, words)
    return order[stands]


def check_boxes(boxes: Tensor, scores: Tensor) -> None:
    """Refuse what is not boxes [n, 4] and scores [n].

    Raises:
        RuntimeError: with both shapes.
    """
    if scores.dim() != 1 or boxes.shape != (len(scores), 4):
        raise RuntimeError(
            f"nms takes boxes [n, 4] and scores [n], not {list(boxes.shape)} and "
            f"{list(scores.shape)}"
        )


@cache
def _overlaps(dtype: torch.dtype) -> Kernel:
    value = dtype_of(dtype).value
    return Kernel(
        "nms_overlaps",
        value,
        (
            Operand("box", dtype, "address"),
            Operand("row", role="position"),
            Operand("word", role="position"),
            Operand("overlaps", torch.int64, "output", "long", "bits"),
            Scalar("count", "long"),
            Scalar("limit", value),
        ),
        in_type(BODY, value),
        scalar_only=True,
        work=WORD,
    )


@cache
def _sweep(device: int) -> KernelLaunch:
    limits = devices()[device].limits
    items = 1 if limits.kind == "cpu" else min(256, limits.max_work_group)
    source = render("suppression_sweep", package="ocl_backend")
    pointers = (Pointer(8), Pointer(8), Pointer(1))
    arguments: tuple[Argument, ...] = (*pointers, Varying("long"), Varying("long"))
    return prepare(device, source, "suppression_sweep", (items,), arguments, (items,))


OPERATORS: dict[str, Callable[..., Any]] = {"nms": nms}
"""Implementations by torchvision's name."""
