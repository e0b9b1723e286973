"""Matrix units that a sub-group feeds from registers, through functions of a vendor's OpenCL C.

A fragment of A has rows of 16 steps of k, one of B columns of 16; both lie in memory so, as 16-bit
elements, one row or column after the other. One call adds the product of two fragments to a
fragment of C in fp32. How lanes hold them differs from unit to unit, and is said here alone.

Sources: Intel, the extension `DPAS`; AMD, "RDNA3", "RDNA4" and "CDNA2"
instruction set architecture guides, matrix instructions, by the names of LLVM's builtins.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS = 16
"""Steps of k that one call of any unit covers."""


DTYPES = {
    "fp16": (0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600),
    "bf16": (0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0),
}
"""What every unit multiplies, and the bits of 0 to 6 in it."""
DPAS = "cl_intel_subgroup_matrix_multiply_accumulate"
"""Intel's extension that declares its functions."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How the lanes of a sub-group hold fragments.

    Attributes:
        lanes: work-items of a sub-group.
        rows: rows of a fragment of A and C.
        columns: columns of a fragment of B and C.
        sums: rows of C that a lane holds of its one column, `lane % columns`.
        row_of_lane: first of those rows, by `lane`.
        row_step: distance between them.
        left: type of a lane's part of A: in fp16, in bf16.
        right: type of a lane's part of B: in fp16, in bf16.
        first: element of A and B with which a lane's part begins, by `lane`; "" where A comes by a
            block read instead.
        call: the function: in fp16, in bf16.
        more: arguments after the three operands.
        most_sums: floats of C that a lane keeps in registers beside the operands.
        is_intel: its sub-groups and block reads are functions of Intel's.
    """

    lanes: int
    rows: int
    columns: int
    sums: int
    row_of_lane: str
    row_step: int
    left: tuple[str, str]
    right: tuple[str, str]
    first: str
    call: tuple[str, str]
    more: str = ""
    most_sums: int = 64
    is_intel: bool = False


_DPAS = (
    "intel_sub_group_f16_f16_matrix_mad_k16",
    "intel_sub_group_bf16_bf16_matrix_mad_k16",
)
_WMMA = "__builtin_amdgcn_wmma_f32_16x16x16"
_MFMA = "__builtin_amdgcn_mfma_f32_16x16x16"
UNITS: dict[str, Unit] = {
    # Xe-HPG (Arc): 8 lanes, each with two neighbours along k of every row
    "dpas8": Unit(
        8, 8, 8, 8, "0", 1, ("int8", "int8"), ("int8", "int8"), "", _DPAS,
        most_sums=32, is_intel=True,
    ),
    # Xe-HPC and Xe2: 16 lanes, each with one step of k of every row
    "dpas16": Unit(
        16, 8, 16, 8, "0", 1, ("short8", "short8"), ("int8", "int8"), "", _DPAS,
        is_intel=True,
    ),
    # RDNA3: both halves of a wave of 32 hold the same rows and columns
    "wmma": Unit(
        32, 16, 16, 8, "lane / 16", 2, ("half16", "short16"), ("half16", "short16"),
        "lane % 16 * 16", (f"{_WMMA}_f16_w32", f"{_WMMA}_bf16_w32"),
    ),
    # RDNA4: each half of a wave of 32 holds half of k
    "wmma_gfx12": Unit(
        32, 16, 16, 8, "lane / 16 * 8", 1, ("half8", "short8"), ("half8", "short8"),
        "lane % 16 * 16 + lane / 16 * 8",
        (f"{_WMMA}_f16_w32_gfx12", f"{_WMMA}_bf16_w32_gfx12"),
    ),
    # CDNA2 and CDNA3: each quarter of a wave of 64 holds a quarter of k
    "mfma": Unit(
        64, 16, 16, 4, "lane / 16 * 4", 1, ("half4", "short4"), ("half4", "short4"),
        "lane % 16 * 16 + lane / 16 * 4", (f"{_MFMA}f16", f"{_MFMA}bf16_1k"), ", 0, 0, 0",
    ),
}  # fmt: skip
"""The units by the names of the instructions that `oclgen.opencl.probe` asks for."""


def text(unit: str, dtype: str) -> str:
    """Return the OpenCL C of a unit: types, loads and the product.

    The kernel writes FRAGMENT_LANES before its name and begins with `const int lane = LANE;`. Then
    it calls LOAD_LEFT(p) and LOAD_RIGHT(p), p the `__global const ushort *` of a fragment, and
    MULTIPLY(left, right, sums), which returns the new `sums_t`.

    Args:
        unit: a name of `UNITS`.
        dtype: "fp16" or "bf16".
    """
    one, which = UNITS[unit], dtype == "bf16"
    left, right, call = one.left[which], one.right[which], one.call[which]
    lines = [
        *(_intel(one, call, left, right) if one.is_intel else _amd(one, dtype)),
        f"typedef {left} left_t;",
        f"typedef {right} right_t;",
        f"typedef float{one.sums} sums_t;",
    ]
    if one.first:
        lines.append(f"#define LOAD_LEFT(p) {_load(left, one.first)}")
    lines += [
        f"#define LOAD_RIGHT(p) {_load(right, one.first or 'lane * 16')}",
        f"#define MULTIPLY(left, right, sums) {call}(left, right, sums{one.more})",
    ]
    return "\n".join(lines)


def _intel(unit: Unit, call: str, left: str, right: str) -> list[str]:
    read = "intel_sub_group_block_read8" if left == "int8" else "intel_sub_group_block_read_us8"
    word = "uint" if left == "int8" else "ushort"
    return [
        f"#ifndef {DPAS} // else the compiler declares it",
        f"float8 __attribute__((overloadable)) {call}({left} a, {right} b, float8 sums);",
        "#endif",
        f"#define FRAGMENT_LANES __attribute__((intel_reqd_sub_group_size({unit.lanes})))",
        "#define LANE (int)get_sub_group_local_id()",
        # component i of lane l is word i * lanes + l: rows as they lie in memory
        f"#define LOAD_LEFT(p) as_{left}({read}((__global const {word} *)(p)))",
    ]


def _amd(unit: Unit, dtype: str) -> list[str]:
    enabled = ["#pragma OPENCL EXTENSION cl_khr_fp16 : enable"] if dtype == "fp16" else []
    return [
        *enabled,
        "#define FRAGMENT_LANES",
        f"#define LANE (int)get_local_id(0) % {unit.lanes}",
    ]


def _load(kind: str, first: str) -> str:
    return f"(*(__global const {kind} *)((p) + {first}))"
