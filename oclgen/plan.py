"""The launch plan: OpenCL C text and how to launch it, as plain values.

No device is touched here; `oclgen.opencl.device` builds and runs a plan, `ocl_backend` likewise.

Every buffer argument of a generated kernel is a `__global` pointer followed at once by a `long`
element offset, so a tensor that starts in the middle of its storage needs no sub-buffer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar


class Buffer(NamedTuple):
    """A `__global` pointer argument: the problem's buffer of that role, or a workspace."""

    role: str


class Offset(NamedTuple):
    """The `long` argument after a buffer: the element at which it starts (workspaces: 0)."""

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


class LazyText:
    """A text that is rendered when it is first read, and pickled as the text.

    Most plans of a search are asked for their sizes alone, which cost a hundredth of their text.
    """

    __slots__ = ("_render", "_text")

    def __init__(self, render: Callable[[], str]) -> None:
        self._render = render
        self._text: str | None = None

    def __str__(self) -> str:
        """Return the text."""
        if self._text is None:
            self._text = self._render()
        return self._text

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, LazyText | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. Sizes are in work-items; `local_bytes` is what the kernel declares.

    `of_weights` says that it reads weights alone (w, and what is folded into it) and fills
    workspaces that no other launch writes: while the weights stay the same, so do they.
    """

    text: str | LazyText
    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    args: tuple[Arg, ...]
    local_bytes: int = 0
    of_weights: bool = False

    @property
    def source(self) -> str:
        """The program's OpenCL C."""
        return str(self.text)

    @property
    def spread(self) -> Spread:
        """Its sizes."""
        return Spread(self.kernel, self.global_size, self.local_size, self.local_bytes)


class Spread(NamedTuple):
    """How a launch is spread over a device, without its text and arguments: as `Launch` has it."""

    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    local_bytes: int = 0

    @property
    def frame(self) -> Frame:
        """What it asks of a device."""
        return Frame(self.kernel, self.local_size, self.local_bytes)

    def launch(self, text: str | LazyText, args: tuple[Arg, ...]) -> Launch:
        """Return the launch that is spread so."""
        return Launch(text, self.kernel, self.global_size, self.local_size, args, self.local_bytes)


class Frame(NamedTuple):
    """What a launch asks of a device beside its arguments: sizes, as `Launch` has them."""

    kernel: str
    local_size: tuple[int, ...]
    local_bytes: int = 0


class Needs(NamedTuple):
    """What a plan asks of a device: frames of its launches, and its workspaces, (role, bytes)."""

    frames: tuple[Frame, ...]
    workspaces: tuple[tuple[str, int], ...] = ()


class Outline(NamedTuple):
    """A plan whose main launches have neither text nor arguments, as `Plan` has the rest.

    A candidate is predicted by it: text and arguments are most of what a plan costs the host.
    """

    launches: tuple[Launch | Spread, ...]
    workspaces: tuple[tuple[str, int], ...] = ()
    counters: int = 0

    @property
    def needs(self) -> Needs:
        """What it asks of a device; launches that pack or add are left out."""
        frames = (one.frame for one in self.launches if isinstance(one, Spread))
        return Needs(tuple(frames), self.workspaces)


AnyLaunch = TypeVar("AnyLaunch", bound=Launch | Spread)


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order, the workspaces they share, (role, bytes), and how many `COUNTERS`."""

    launches: tuple[Launch, ...]
    workspaces: tuple[tuple[str, int], ...] = ()
    counters: int = 0

    @property
    def needs(self) -> Needs:
        """Its demands on a device."""
        frames = (Frame(one.kernel, one.local_size, one.local_bytes) for one in self.launches)
        return Needs(tuple(frames), self.workspaces)

    def digest(self) -> str:
        """Return 16 hex digits (64 bits of SHA-256) that name what a device would be given.

        Covered are, of every launch in order: the source, the kernel's name, global and local
        sizes, the arguments (roles, and the value, type and name of each number), and the bytes of
        local memory; then the workspaces with their bytes, and the number of counters. Not covered
        are the problem, the config and `of_weights`, which says when a launch may be left out.
        It is the same in every process and Python version, so records may be compared by it.
        """
        launches = [
            [
                launch.source, launch.kernel, launch.global_size, launch.local_size,
                [[type(arg).__name__, *arg] for arg in launch.args], launch.local_bytes,
            ]
            for launch in self.launches
        ]  # fmt: skip
        content = json.dumps([launches, self.workspaces, self.counters])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def replaceable(self) -> frozenset[str]:
        """Names of the scalars that a caller may replace at launch."""
        args = (arg for launch in self.launches for arg in launch.args)
        return frozenset(arg.name for arg in args if isinstance(arg, Scalar) and arg.name)


@lru_cache(maxsize=256)
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
