"""The two operators of `torch.amp.GradScaler`: unscale gradients, and adapt the scale.

torch decides which gradients and when; `csrc/dispatch/autocast.cpp` decides what runs in half
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch

UNSCALE = """\
if (!isfinite(grad))
    STORE_found_inf(found_inf_at, 1.0f);
const T unscaled = grad * inv_scale;
"""

UPDATE = """\
const bool grows = tracker + 1 == interval;
const float wanted = found_inf != 0 ? scale * backoff : grows ? scale * growth : scale;
// a scale that became infinite would never come back
const float adapted = isfinite(wanted) ? wanted : scale;
const int counted = found_inf != 0 || grows ? 0 : tracker + 1;
"""


def unscale(grads: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients in place by `inv_scale`; set `found_inf` to 1 if an item is not finite.

    Both are float32 tensors of one item on the gradients' device.
    """
    for grad in grads:
        nowhere = {"found_inf": (0,) * grad.dim()}
        launch(_unscale(grad.dtype), grad.shape, (grad, found_inf, inv_scale), nowhere)


def update_scale(
    scale: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Shrink the scale after a step with infinities, grow it after `growth_interval` without."""
    numbers = (growth_factor, backoff_factor, growth_interval)
    launch(UPDATE_SCALE, (1,), (scale, growth_tracker, found_inf, *numbers))
    return scale


@cache
def _unscale(dtype: torch.dtype) -> Kernel:
    return Kernel(
        "amp_unscale",
        dtype_of(dtype).value,
        (
            Operand("grad", dtype, "inout", result="unscaled"),
            Operand("found_inf", torch.float32, "address", "float"),
            Operand("inv_scale", torch.float32, "input", "float"),
        ),
        UNSCALE,
        scalar_only=True,
    )


UPDATE_SCALE = Kernel(
    "amp_update_scale",
    "float",
    (
        Operand("scale", torch.float32, "inout", result="adapted"),
        Operand("tracker", torch.int32, "inout", "int", "counted"),
        Operand("found_inf", torch.float32),
        *(Scalar("growth", "float"), Scalar("backoff", "float"), Scalar("interval", "long")),
    ),
    UPDATE,
    scalar_only=True,
)

OPERATORS: dict[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": unscale,
    "_amp_update_scale_": update_scale,
}
"""Implementations by aten name."""
