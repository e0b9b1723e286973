"""The launch plan: OpenCL C text and how to launch it, as plain values.

No device is touched here; `oclgen.opencl.device` builds and runs a plan, `ocl_backend` likewise.

Every buffer argument of a generated kernel is a `__global` pointer followed at once by a `long`
element offset, so a tensor that starts in the middle of its storage needs no sub-buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Buffer(NamedTuple):
    """A `__global` pointer argument: the problem's buffer of that role, or a workspace."""

    role: str


class Offset(NamedTuple):
    """The `long` argument behind a buffer: the element at which it starts (workspaces: 0)."""

    role: str


class Scalar(NamedTuple):
    """A number argument; `name` is set where a caller may replace the value at launch."""

    value: int | float
    type: Literal["int", "long", "float"] = "int"
    name: str = ""


Arg = Buffer | Offset | Scalar

WARP = 32
"""Neighbouring work-items whose loads and stores a GPU joins."""
WORK_ITEMS_PER_UNIT = 2048
"""Work-items that a compute unit of a GPU holds at once."""
COUNTERS = "counters"
"""Role of the ints by which work-groups of a launch count each other.

They are zero before a launch, and it leaves them zero: plans on one queue share them.
"""
COUNTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. Sizes are in work-items; `local_bytes` is what the kernel declares.

    `of_weights` says that it reads weights alone (w, and what is folded into it) and fills
    workspaces that no other launch writes: while the weights stay the same, so do they.
    """

    source: str
    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    args: tuple[Arg, ...]
    local_bytes: int = 0
    of_weights: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order, the workspaces they share, (role, bytes), and how many `COUNTERS`."""

    launches: tuple[Launch, ...]
    workspaces: tuple[tuple[str, int], ...] = ()
    counters: int = 0

    @property
    def workspace_bytes(self) -> int:
        """Bytes of all workspaces together."""
        return sum(size for _, size in self.workspaces)

    @property
    def replaceable(self) -> frozenset[str]:
        """Names of the scalars that a caller may replace at launch."""
        args = (arg for launch in self.launches for arg in launch.args)
        return frozenset(arg.name for arg in args if isinstance(arg, Scalar) and arg.name)


def buffer(role: str) -> tuple[Buffer, Offset]:
    """Return the two arguments every buffer has: its pointer and its element offset."""
    return Buffer(role), Offset(role)


def round_up(value: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `value`."""
    return ceil_div(value, multiple) * multiple


def even_part(count: int, most: int) -> int:
    """Return the size of the fewest equal parts of `count` that are no larger than `most`."""
    return ceil_div(count, ceil_div(count, most))


def ceil_div(value: int, divisor: int) -> int:
    """Return value / divisor, rounded up."""
    return -(-value // divisor)
