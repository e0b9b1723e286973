"""Kernels of processors for `unfold` and `fold`: rows of windows are copied, or added, as runs.

An item that looks for its place by itself divides and tests; a run does so once.
"""

from __future__ import annotations

from functools import cache

import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar

UNFOLD = """\
// window `c` of a row reads item c * stride_x + shift; those from `first` to `end` lie inside
const int stride = (int)stride_x, many = (int)counts_x, shift = (int)x - (int)pad_x;
const int first = clamp((stride - 1 - shift) / stride, 0, many);
const int end = clamp(((int)size_x - shift + stride - 1) / stride, first, many);
const long step = stride_x * step_x;
for (int r = 0; r < (int)counts_y; ++r) {
    const int row = r * (int)stride_y + (int)y - (int)pad_y;
    const bool is_inside = row >= 0 && row < (int)size_y;
    const int begin = is_inside ? first : many, last = is_inside ? end : many;
    const long to = out_at + (long)r * many, from = self_at + row * step_y + shift * step_x;
    int c = 0;
    for (; c + 8 <= begin; c += 8)
        STORES_out(to + c, (TYPE8)(0));
    for (; c < begin; ++c)
        STORE_out(to + c, (T)0);
    if (step == 1)
        for (; c + 8 <= last; c += 8)
            STORES_out(to + c, LOADS_self(from + c));
    for (; c < last; ++c)
        STORE_out(to + c, LOAD_self(from + c * step));
    for (; c < many; ++c)
        STORE_out(to + c, (T)0);
}
"""
BLOCK = 256
"""Items of a row whose sums a work-item of `fold` keeps."""
FOLD = """\
const int stride = (int)stride_x;
for (int begin = 0; begin < (int)width; begin += BLOCK) {
    T sums[BLOCK];
    const int many = min(BLOCK, (int)width - begin);
    for (int x = 0; x < BLOCK; ++x)
        sums[x] = 0;
    for (int i = 0; i < (int)taps_y; ++i) {
        const int above = (int)y + (int)pad_y - i * (int)dilation_y, row = above / (int)stride_y;
        if (above < 0 || row >= (int)size_y || row * (int)stride_y != above)
            continue;
        for (int j = 0; j < (int)taps_x; ++j) {
            // window c is added to item c * stride + shift of the block
            const int shift = j * (int)dilation_x - (int)pad_x - begin;
            const int end = min((int)size_x, max(0, many - shift + stride - 1) / stride);
            const long at = columns_at + (i * taps_x + j) * tap + row * size_x * window;
            int c = max(0, stride - 1 - shift) / stride;
            if (stride == 1 && window == 1)
                for (; c + 8 <= end; c += 8)
                    vstore8(vload8(0, sums + c + shift) + LOADS_columns(at + c), 0,
                            sums + c + shift);
            for (; c < end; ++c)
                sums[c * stride + shift] += LOAD_columns(at + c * window);
        }
    }
    int x = 0;
    for (; x + 8 <= many; x += 8)
        STORES_out(out_at + begin + x, vload8(0, sums + x));
    for (; x < many; ++x)
        STORE_out(out_at + begin + x, sums[x]);
}
"""


def as_work(items: int) -> int:
    """Return the `work` of a kernel whose body takes as long as some usual items."""
    return min(CHUNK, 1 << (items - 1).bit_length())


@cache
def unfolded_planes(dtype: torch.dtype, work: int) -> Kernel:
    """Return the kernel that writes one tap of all windows of a plane.

    Args:
        dtype: of the bits that are moved.
        work: `as_work` of the windows.
    """
    value = dtype_of(dtype).value
    labels = ("pad", "size", "step", "counts", "stride")
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("y", role="position"),
        Operand("x", role="position"),
        Operand("self", dtype, "address", items=8),
        Operand("out", dtype, "address", items=8),
        *(Scalar(f"{label}_{d}", "long") for label in labels for d in "yx"),
    )
    text = UNFOLD.replace("TYPE", value)
    return Kernel("unfold_planes", value, parameters, text, scalar_only=True, work=work)


@cache
def folded_rows(dtype: torch.dtype, work: int) -> Kernel:
    """Return the kernel that adds up a row of an image; its sums are rounded once.

    Args:
        dtype: of the columns and the image.
        work: `as_work` of the additions.
    """
    labels = ("pad", "size", "taps", "dilation", "stride")
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("y", role="position"),
        Operand("columns", dtype, "address", items=8),
        Operand("out", dtype, "address", items=8),
        *(Scalar(f"{label}_{d}", "long") for label in labels for d in "yx"),
        *(Scalar(name, "long") for name in ("tap", "window", "width")),
    )
    value = dtype_of(dtype).value
    text = FOLD.replace("BLOCK", str(BLOCK))
    return Kernel("fold_rows", value, parameters, text, scalar_only=True, work=work)
