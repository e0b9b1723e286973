"""Options of processors' compilers: no vectors of work-items without neighbours, and fast code.

Intel's runtime compiles each kernel twice: once with up to 16 work-items of a group as the lanes of
a vector, and once for a single work-item. A group of one work-item runs the second form alone. The
first costs the compiler most of its time: programs of convolutions were 60 times as large, and had
to be searched at each start of a group. `vec_type_hint` of a vector's type tells the compiler that
the kernel has vectors of its own.

Source: Khronos, "OpenCL C Specification", optional attribute qualifiers.
"""

from __future__ import annotations

import re

_NAME = "reqd_work_group_size"
_GROUPS = re.compile(rf"{_NAME}(?<!\w{_NAME})\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)")
"""The attribute and its sizes. The name comes before the test that no letter is in front of it: a
search that begins with a text is fast, and each look for a program on disk asks."""
_ONE = ("1", "1", "1")
_GROUP = f"{_NAME}(x,y,z)"
OPTION = f"-D{_GROUP}={_GROUP},vec_type_hint(float4)"
_HALF = "vload_half("
_OWN_BITS = "half *)&"
"""Reads a private number of another type as half. As a function call it may; as an access the
compiler takes both for different numbers, since their types differ, and drops what was stored."""
HALF = (
    f"-D{_HALF}i,p)=({{ushort8/**/half_bits=(ushort8)(as_ushort((p)[i]));"
    "vload_half8(0,(half*)&half_bits).s0;})"
)
"""Lets a work-item read one item in 16 bits by the instruction that converts eight. Intel's
compiler (2026.22) calls a function for one that is no lane of a vector: x - y in fp16 took 4.0 ns
an item, and takes 0.5 (EPYC, Zen 5). A comment is in place of a space, since spaces end an option.
"""
_ROOT = "rsqrt("
ROOT = f"-D{_ROOT}x)=(1.0f/sqrt(x))"
"""Lets a processor compute rsqrt by its instructions for roots and quotients, as torch does.
Intel's function (2026.22) takes a slow way for a vector of which one argument is out of its fast
range: where half are negative, it took 20 times as long (EPYC, Zen 3)."""


def options(source: str, is_intel: bool = False) -> tuple[str, ...]:
    """Return a processor's options for a program: for groups of single work-items, and Intel's.

    Args:
        source: of the program. A kernel that does not say what its group is may have neighbours.
        is_intel: whether Intel's runtime compiles it.
    """
    roots = (ROOT,) if is_intel and _ROOT in source else ()
    groups = _GROUPS.findall(source)
    if set(groups) != {_ONE} or source.count("__kernel") != len(groups):
        return roots
    reads_halves = is_intel and _HALF in source and _OWN_BITS not in source
    return (OPTION, *((HALF,) if reads_halves else ()), *roots)
