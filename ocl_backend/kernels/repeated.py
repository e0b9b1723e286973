"""Numbers that counts repeat, on processors: a work-item writes those of a stretch of the counts.

GPUs look each result up in the counts' sums, since counts differ and their work-items would wait.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

BODY = """\
const long last = min(first + CHUNK, count);
long to = first ? clamp(LOAD_ends(first - 1), 0L, total) : 0;
for (long k = first; k < last; ++k)
    for (const long end = min(LOAD_ends(k), total); to < end; ++to)
        STORE_out(to, k);
if (last == count)
    for (; to < total; ++to)
        STORE_out(to, count);
"""


def serves(x: Tensor) -> bool:
    """Say whether x is a processor's."""
    return devices()[x.get_device()].limits.kind == "cpu"


def repeated(ends: Tensor, total: int, dtype: torch.dtype) -> Tensor:
    """Return the number of the count that each of `total` positions belongs to, as `dtype`.

    Args:
        ends: sums of the counts so far, [counts] int64. Positions behind the last one have the
            number of counts.
        total: positions.
        dtype: int32 or int64.
    """
    count = ends.numel()
    if not count:
        return torch.zeros(total, dtype=dtype, device=ends.device)
    out = torch.empty(total, dtype=dtype, device=ends.device)
    if total:
        walked = {"first": (CHUNK,), "ends": (0,), "out": (0,)}
        launch(_kernel(dtype), (ceil_div(count, CHUNK),), (ends, out, count, total), walked)
    return out


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    parameters = (
        Operand("first", role="position"),
        Operand("ends", torch.int64, "address", "long"),
        Operand("out", dtype, "address", "long"),
        Scalar("count", "long"),
        Scalar("total", "long"),
    )
    body = BODY.replace("CHUNK", str(CHUNK))
    return Kernel("repeat_by_counts", "long", parameters, body, scalar_only=True, work=CHUNK)
