"""Combining items at computed places in one fixed order, for torch.use_deterministic_algorithms.

The places are sorted, and one work-item walks all items of a place. Without that mode, `scatter`
lets them race, which is faster.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch

BODY = """\
const long at = LOAD_place(place_at);
if (item == 0 || LOAD_place(place_at - 1) != at) {
    T after = LOAD_target(target_at + at);
    for (long k = 0; item + k < count && LOAD_place(place_at + k) == at; ++k) {
        const T before = after;
        const T value = LOAD_value(value_at + LOAD_order(order_at + k) * value_step);
        after = %s;
    }
    STORE_target(target_at + at, after);
}
"""


def is_wanted(target: Tensor, combine: str) -> bool:
    """Whether the order matters for this combination, and a fixed one was asked for."""
    exact = combine in ("amax", "amin") or not (combine == "assign" or target.is_floating_point())
    return not exact and torch.are_deterministic_algorithms_enabled()


def combine_in_order(target: Tensor, places: Tensor, value: Tensor | float, formula: str) -> None:
    """Let each item of `target` become `formula` of `before` and `value`, value by value.

    Values that meet take their turns by their positions.

    Args:
        target: written in place.
        places: int64 indices of items, counted from the first of `target`.
        value: a number, or a tensor that broadcasts to the shape of `places`.
        formula: C of `before`, the item, and `value`.
    """
    if not isinstance(value, Tensor):
        value = torch.full((), value, dtype=target.dtype, device=target.device)
    count, step = places.numel(), 0 if value.numel() == 1 else 1
    if step:
        value = value.expand(places.shape).contiguous()
    found, order = places.flatten().sort(stable=True)
    given = (target, found, order, value, count, step)
    still, along = (0,), (1,)
    walked = {"item": along, "target": still, "place": along, "order": along, "value": still}
    launch(_kernel(target.dtype, value.dtype, formula), (count,), given, walked)


@cache
def _kernel(target: torch.dtype, value: torch.dtype, formula: str) -> Kernel:
    return Kernel(
        "scatter_in_order",
        dtype_of(target).value,
        (
            Operand("item", role="position"),
            Operand("target", target, "address"),
            Operand("place", torch.int64, "address", "long"),
            Operand("order", torch.int64, "address", "long"),
            Operand("value", value, "address"),
            Scalar("count", "long"),
            Scalar("value_step", "long"),
        ),
        BODY % formula,
        scalar_only=True,
    )
