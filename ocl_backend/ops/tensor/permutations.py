"""Random orders: `randperm`. The random numbers are those of `random`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.checks import largest_exact
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.tensor.random import PHILOX, Generator, random_, reserve
from oclgen.opencl.device import devices

SHUFFLE = Kernel(
    "shuffle",
    "int",
    (
        Operand("out", torch.int32, "address"),
        *(Scalar(label, "long") for label in ("seed", "offset", "count")),
    ),
    """\
for (long i = 0; i < count; ++i)
    STORE_out(out_at + i, (int)i);
for (long i = 0; i < count; i += 4) {
    const uint4 r = philox(seed, offset + i / 4);
    const uint words[4] = {r.s0, r.s1, r.s2, r.s3};
    for (long k = i; k < min(i + 4, count); ++k) {
        const long other = k + (long)((ulong)words[k - i] * (ulong)(count - k) >> 32);
        const int kept = LOAD_out(out_at + k);
        STORE_out(out_at + k, LOAD_out(out_at + other));
        STORE_out(out_at + other, kept);
    }
}
""",
    PHILOX,
    scalar_only=True,
)
"""Swaps each position with one that is not before it (Fisher and Yates 1938; Durstenfeld 1964). A
processor's work-item does so in a few ns an item, where a sort of keys takes a hundred times as
long."""


def randperm_out(n: int, *, generator: Generator = None, out: Tensor) -> Tensor:
    """Write a random order of 0 ... n - 1 to `out`, whose dtype must hold them all exactly."""
    if n - 1 > largest_exact(out.dtype):
        raise RuntimeError(
            f"n is too large for {out.dtype}: {n}, it holds {largest_exact(out.dtype)}"
        )
    if devices()[out.get_device()].limits.kind == "cpu" and 0 < n < 1 << 31:
        order = torch.empty(n, dtype=torch.int32, device=out.device)
        seed, offset = reserve(order, generator, -(-n // 4))
        launch(SHUFFLE, (1,), (order, seed, offset, n), {"out": (0,)})
        return out.resize_((n,)).copy_(order)
    keys = torch.empty(n, dtype=torch.int64, device=out.device)
    return out.resize_((n,)).copy_(random_(keys, generator=generator).argsort())


OPERATORS: dict[str, Callable[..., Any]] = {"randperm.generator_out": randperm_out}
"""Implementations by aten name."""
