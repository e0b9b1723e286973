"""Numbers that depend on a free size: arguments of a kernel; constants of its text if none is free.

Templates write the constants as `#define`s, and append the names of the arguments to their
parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from oclgen.problem import Problem


class Sizes(NamedTuple):
    """A kernel's sizes by name: those that its text has, and those that it is `given`, ints."""

    text: dict[str, int]
    given: dict[str, int]


def parted(problem: Problem, sizes: Mapping[str, int], growing: Collection[str]) -> Sizes:
    """Return a kernel's sizes, parted.

    Args:
        problem: what the kernel computes.
        sizes: by the names that its template has for them.
        growing: names of those that grow with the problem's free sizes, if it has any.
    """
    given = [name for name in sizes if problem.free and name in growing]
    text = {name: size for name, size in sizes.items() if name not in given}
    return Sizes(text, {name: sizes[name] for name in given})
