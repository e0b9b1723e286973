"""Adding samples' gradients to images on processors: each channel has one owner.

Samples of a plane meet, planes never do. An owner walks all samples of its channels and lists the
items that they read, with weights; then it adds for one channel after the other, so that channels
share the search for items and additions stay within a plane. No atomics, and one order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar
from ocl_backend.kernels.owners import ALONE, are_possible
from ocl_backend.kernels.scatter import NARROW, alert_not_deterministic, require_atomics
from ocl_backend.kernels.vectors import in_type, vector
from oclgen.opencl.device import devices

PLANES = """\
#define FLUSH \\
    for (long c = part * share; c < min((part + 1) * share, channels); ++c) \\
        for (int k = 0; k < listed; ++k) \\
            TOTAL_data[TOTAL_at + c * total_step_c + items[k]] \\
                += weights[k] * LOAD_GRAD(GRAD_at + c * grad_step_c + sources[k]); \\
    listed = 0
"""

ROWS = """\
#define FLUSH \\
    for (int k = 0; k < listed; ++k) { \\
        for (long c = part * share; c < min((part + 1) * share, channels); c += WIDTH) { \\
            const long place = TOTAL_at + items[k] + c; \\
            const V before = LOADS_TOTAL(place); \\
            STORES_TOTAL(place, before + weights[k] * LOADS_GRAD(GRAD_at + sources[k] + c)); \\
        } \\
    } \\
    listed = 0
"""
"""Where channels lie together: `share` is a multiple of the vector's width."""

LISTING = """\
#define LISTED 256
#define ADD(item, source, weight) \\
    if (listed == LISTED) { \\
        FLUSH; \\
    } \\
    items[listed] = item; \\
    sources[listed] = source; \\
    weights[listed++] = weight
"""

LIST = "long items[LISTED], sources[LISTED];\nT weights[LISTED];\nint listed = 0;\n"

NUMBERS = ("share", "channels", "total_step_c", "grad_step_c")


def owned_kernel(
    name: str,
    value: str,
    parameters: Sequence[Operand | Scalar],
    walk: str,
    helpers: str = "",
    total: str = "total",
    grad: str = "grad",
    width: int = 0,
) -> Kernel:
    """Return a kernel of owners; a launch gives it `NUMBERS` last, and moves the position `part`.

    Args:
        name: of the kernel.
        value: C type of the additions, and of the items of `total`.
        parameters: its others.
        walk: C that calls `ADD(item, source, weight)` for each item that a sample reads: where it
            is in a plane, where the sample is in the channel's gradient, and what it counts there.
            `T` is `value`.
        helpers: functions that it calls.
        total: the address operand that is added to.
        grad: the address operand that is added.
        width: channels that lie together and are added at once; it divides them. 0: planes.
    """
    macros = (ROWS if width else PLANES) + LISTING
    macros = macros.replace("TOTAL", total).replace("GRAD", grad)
    if width == 1:
        macros = macros.replace("LOADS_", "LOAD_").replace("STORES_", "STORE_")
    macros = re.sub(r"\bWIDTH\b", str(width), macros)
    macros = re.sub(r"\bV\b", vector(value, width or 1), macros)
    numbers = (Scalar(number, "long") for number in NUMBERS)
    given = (Operand("part", role="position"), *parameters, *numbers)
    body = in_type(LIST + walk + "FLUSH;\n", value)
    return Kernel(name, value, given, body, helpers + macros, scalar_only=True, work=CHUNK)


def owned_parts(device: int, apart: int, channels: int) -> int:
    """Return into how many parts owners share `channels`; 0 where atomics are faster.

    Args:
        device: its index.
        apart: owners that there are beside, as of several images.
        channels: planes of each.
    """
    limits = devices()[device].limits
    if not are_possible(limits) or not apart * channels:
        return 0
    parts = min(channels, max(1, -(-4 * limits.compute_units // apart)))
    enough = ALONE * apart * parts >= limits.compute_units
    return parts if enough or torch.are_deterministic_algorithms_enabled() else 0


def zeros_to_add_to(name: str, like: Tensor, size: Sequence[int], parts: int) -> Tensor:
    """Return zeros of `size`, of the dtype in which gradients of `like` are added.

    Args:
        name: of the operator.
        like: a tensor of the gradient's dtype and device.
        size: of the gradient.
        parts: of owners; 0 if additions are atomic.

    Raises:
        RuntimeError: they are, and deterministic algorithms were asked for.
        UnsupportedDtypeError: they are, and the device has no atomics on this dtype.
    """
    if not parts:
        alert_not_deterministic(name)
        require_atomics(like)
    return like.new_zeros(size, dtype=NARROW.get(like.dtype, like.dtype))
