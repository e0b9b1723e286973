"""What all problems share: dtypes, the rules of sizes and names, and pieces of keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Shape = tuple[int, ...]

DTYPES: dict[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Types any problem may have, with the bytes of an element in memory. Accumulation is in fp32. tf32
is fp32 in memory whose products may be rounded to eleven bits, as matrix units do."""
INTEGERS: dict[str, int] = {"int8": 1}
"""Types that matrices of a product may have beside these. C is int32, its sums are exact, and
what is beyond 32 bits is cut off."""
PRODUCT_DTYPES: dict[str, int] = {**DTYPES, **INTEGERS}
"""Types of the matrices of a product."""

STORED_BYTES = {**PRODUCT_DTYPES, "int32": 4, "int64": 8, "uint8": 1}
"""Bytes of an item, also of buffers that do not have their problem's dtype."""

FREE_SIZES = {
    "gemm": ("m", "n", "k", "batch"),
    "conv": ("batch",),
    "attention": ("batch", "queries", "keys"),
    "packed": ("m",),
}
"""The sizes that may be free, by operation: kernels then take them as arguments."""


class ProblemError(ValueError):
    """A problem that cannot exist: a size below one, an unknown dtype, an empty output."""


def require_free(problem: Any) -> None:
    """Refuse a size that is free and cannot be.

    Raises:
        ProblemError: the message names it, and those that can.
    """
    if unknown := problem.free - {*FREE_SIZES[problem.op]}:
        known = ", ".join(FREE_SIZES[problem.op])
        raise ProblemError(
            f"{', '.join(sorted(unknown))} cannot be free in a {problem.op}; known are {known}"
        )


def free_text(problem: Any) -> str:
    """Return the end of a key that names the free sizes, "" without any."""
    return f":any_{'_'.join(sorted(problem.free))}" if problem.free else ""


def require_positive(problem: Any, *names: str) -> None:
    """Refuse a size that is no integer of at least 1.

    Args:
        problem: whose sizes they are.
        names: of the sizes.

    Raises:
        ProblemError: the message names the size and its value.
    """
    for name in names:
        value = getattr(problem, name)
        if not isinstance(value, int) or value < 1:
            raise ProblemError(f"{name} is {value!r}; it must be an integer of at least 1")


def require_known(name: str, value: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among the known ones.

    Args:
        name: of what has the value.
        value: that a problem gives.
        known: values that can be.

    Raises:
        ProblemError: the message lists the known ones.
    """
    if value not in known:
        raise ProblemError(f"{name} {value!r} is unknown; known are {', '.join(known)}")


def bytes_of(buffers: dict[str, Shape], dtype: str, others: dict[str, str] | None = None) -> int:
    """Return the bytes of all buffers.

    Args:
        buffers: their shapes by role.
        dtype: of their items.
        others: dtypes of the roles that have another one.
    """
    total = 0
    for role, shape in buffers.items():
        size = STORED_BYTES[others.get(role, dtype) if others else dtype]
        for extent in shape:
            size *= extent
        total += size
    return total


def output_size(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Return how many whole windows lie along `size` items, `pad` more on either side.

    Args:
        size: items of the input along the dimension.
        kernel: items of a window.
        stride: items between the beginnings of neighbouring windows.
        pad: items that are added before the first and after the last.
        dilation: items between the beginnings of a window's neighbouring items.

    Returns:
        The result's size, below 1 where no window fits.
    """
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


class Volume(NamedTuple):
    """The depth of images of three dimensions, of which a 2-d convolution reads windows.

    A window is `taps` slices of `size`, `dilation` apart. Windows begin `stride` slices apart, the
    first one `pad` slices before the image; slices outside of it are zero.
    """

    size: int
    taps: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    @property
    def windows(self) -> int:
        """Windows of an image."""
        return output_size(self.size, self.taps, self.stride, self.pad, self.dilation)

    @property
    def reach(self) -> int:
        """Slices from the first of the first window to the last of the last one."""
        return (self.windows - 1) * self.stride + (self.taps - 1) * self.dilation + 1
