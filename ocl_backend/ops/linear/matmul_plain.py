"""The plain kernel of products: an output per work-item, for any strides, without a family."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ocl_backend.dispatch.tuned import remember
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.vectors import in_groups
from ocl_backend.runtime.launch import Argument, KernelLaunch, Pointer, prepare
from oclgen.opencl.device import devices
from oclgen.render import render

if TYPE_CHECKING:
    from ocl_backend.ops.linear.matmul import ShapeKey


@remember()
def plain_product(key: ShapeKey) -> KernelLaunch:
    """Return the launch of a product without bias; its pointers are a, b and the result.

    Args:
        key: shapes and strides; variants do not matter.
    """
    dtype = dtype_of(key.dtype)
    source = render("matmul_plain", package="ocl_backend", dtype=dtype)
    *batch, m, k = key.a_shape
    n, count = key.b_shape[-1], batch[0] if batch else 1
    strides = [
        (s[0] if count > 1 else 0, s[-2], s[-1])
        for s in (key.a_strides, key.b_strides, key.out_strides)
    ]
    numbers = (m, n, k, *(step for steps in strides for step in steps))
    arguments: list[Argument] = [*[Pointer(dtype.item_bytes)] * 3, *map(np.int64, numbers)]
    spread = in_groups((n, m, count), devices()[key.device].limits)
    return prepare(key.device, source, "matmul_plain", spread.sizes, arguments, spread.local)
