"""Checks for values that an operator refuses: a kernel reads them and notes faults."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch


def check_values(operator: str, x: Tensor, condition: str) -> None:
    """Note a fault of `operator` (a name of `faults.RULES`) where an item breaks a condition.

    Args:
        operator: whose rule has the error and its text.
        x: floats of any shape and strides.
        condition: C of the item `x`, false of every item that is refused (NaN too).

    Raises:
        RuntimeError: an item was refused, and errors are synchronous.
    """
    if not x.numel():
        return
    device = x.get_device()
    given = (x, faults.NUMBERS[operator], faults.record(device))
    launch(_kernel(x.dtype, condition), tuple(x.shape), given, {"faults": (0,) * x.dim()})
    faults.check(device)


@cache
def _kernel(dtype: torch.dtype, condition: str) -> Kernel:
    return Kernel(
        "check_values",
        dtype_of(dtype).value,
        (
            Operand("x", dtype),
            Scalar("operator", "long"),
            Operand("faults", torch.int64, "address", "long"),
        ),
        f"if (!({condition}))\n    note_fault(faults_data, operator, 0, 0, 0);",
        faults.NOTE,
        scalar_only=True,
    )
