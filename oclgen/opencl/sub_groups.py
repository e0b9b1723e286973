"""How the lanes of a sub-group hand each other what they hold in registers, without local memory.

A lane that loads one element for all lanes saves them the load. Extensions call the function that
hands it on by different names, and a text has to know how many lanes a sub-group has. Both are said
here alone, and `oclgen.opencl.probe` asks devices for them.

Sources: Khronos, "cl_intel_subgroups", "cl_khr_subgroups" and "cl_khr_subgroup_shuffle"; AMD,
"RDNA" and "CDNA" instruction set architecture guides (V_READLANE), by the names of LLVM's builtins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oclgen.opencl.lanes import ATTRIBUTE, EXTENSION

INTEL, KHRONOS, AMD = "cl_intel_subgroups", "cl_khr_subgroup", "cl_amd_"
"""How the names of extensions begin that let expect the functions; Khronos has one for broadcasts,
`cl_khr_subgroups`, and one for shuffles, `cl_khr_subgroup_shuffle`."""
SHUFFLE = "cl_khr_subgroup_shuffle"
"""The extension of `sub_group_shuffle`. A text with its name is built as OpenCL C 3.0, because 1.2
has no sub-groups of Khronos's."""
ROW_WIDTHS = (1, 2, 4, 8)
"""Words of a lane that one read of a row brings."""


@dataclass(frozen=True, slots=True)
class SubGroup:
    """The lanes of a sub-group, and whose functions they use.

    Attributes:
        lanes: neighbouring work-items, which run side by side.
        maker: of the extension.
        extension: how its name begins.
    """

    lanes: int
    maker: Literal["intel", "khr", "amd"]
    extension: str


SUB_GROUPS: dict[str, SubGroup] = {
    **{f"intel_sub{lanes}": SubGroup(lanes, "intel", INTEL) for lanes in (8, 16)},
    **{f"khr_sub{lanes}": SubGroup(lanes, "khr", KHRONOS) for lanes in (32, 16, 64, 8)},
    **{f"amd_sub{lanes}": SubGroup(lanes, "amd", AMD) for lanes in (32, 64)},
}
"""The sub-groups by the names that `oclgen.opencl.probe` asks for, those preferred first."""


def text(name: str) -> str:
    """Return the OpenCL C of a sub-group.

    The kernel writes SUB_GROUP before its name and begins with `const int lane = LANE;`. Then all
    lanes together call

    - FROM_LANE(x, i): the float `x` of lane i, which is the same for all of them;
    - OF_FIRST_LANE(x): an int that all lanes have, which compilers then keep once for all of them;
    - READ_ROW{w}(p), w of `ROW_WIDTHS`, `p` the same `__global const float *` for all: component j
      of lane l is p[j * lanes + l].

    Args:
        name: one of `SUB_GROUPS`.
    """
    one = SUB_GROUPS[name]
    return "\n".join({"intel": _intel, "khr": _khronos, "amd": _amd}[one.maker](one.lanes))


def _intel(lanes: int) -> list[str]:
    reads = (
        f"#define READ_ROW{width}(p) as_float{width if width > 1 else ''}("
        f"intel_sub_group_block_read{width if width > 1 else ''}((__global const uint *)(p)))"
        for width in ROW_WIDTHS
    )
    return [
        f"#define SUB_GROUP __attribute__(({ATTRIBUTE}({lanes})))",
        "#define LANE (int)get_sub_group_local_id()",
        "#define FROM_LANE(x, i) intel_sub_group_shuffle(x, i)",
        "#define OF_FIRST_LANE(x) intel_sub_group_shuffle(x, 0)",
        *reads,
    ]


def _khronos(lanes: int) -> list[str]:
    return [
        f"#ifdef {EXTENSION} // else the device has one size",
        f"#define SUB_GROUP __attribute__(({ATTRIBUTE}({lanes})))",
        "#else",
        "#define SUB_GROUP",
        "#endif",
        f"#define LANE (int)get_local_id(0) % {lanes}",
        f"#ifdef {SHUFFLE}",
        f"#pragma OPENCL EXTENSION {SHUFFLE} : enable",
        "#define FROM_LANE(x, i) sub_group_shuffle(x, (uint)(i))",
        "#define OF_FIRST_LANE(x) sub_group_shuffle(x, 0u)",
        "#else",
        "#pragma OPENCL EXTENSION cl_khr_subgroups : enable",
        "#define FROM_LANE(x, i) sub_group_broadcast(x, (uint)(i))",
        "#define OF_FIRST_LANE(x) sub_group_broadcast(x, 0u)",
        "#endif",
        *_rows(lanes),
    ]


def _amd(lanes: int) -> list[str]:
    return [
        "#define SUB_GROUP",
        f"#define LANE (int)get_local_id(0) % {lanes}",
        "#define FROM_LANE(x, i) as_float(__builtin_amdgcn_readlane(as_int(x), i))",
        "#define OF_FIRST_LANE(x) __builtin_amdgcn_readfirstlane(x)",
        *_rows(lanes),
    ]


def _rows(lanes: int) -> list[str]:
    """Return the reads of rows by loads of neighbouring lanes, which a GPU makes one of."""
    lines = []
    for width in ROW_WIDTHS:
        words = ", ".join(f"(p)[{j * lanes} + lane]" for j in range(width))
        kind = f"(float{width})" if width > 1 else ""
        lines.append(f"#define READ_ROW{width}(p) {kind}({words})")
    return lines
