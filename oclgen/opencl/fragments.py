"""Matrix units that a sub-group feeds from registers, through functions of a vendor's OpenCL C.

A fragment of A has rows of 16 steps of k, one of B columns of 16; both lie in memory so, as 16-bit
elements, one row or column after the other. One call adds the product of two fragments to a
fragment of C in fp32. How lanes hold them differs from unit to unit, and is said here alone.
How lanes hold cooperative matrices, only the device's compiler knows: they are loaded and stored
whole.

Sources: Intel, the extension `DPAS`; AMD, "RDNA3", "RDNA4" and "CDNA2"
instruction set architecture guides, matrix instructions, by the names of LLVM's builtins; for
cooperative matrices the drafts of Khronos (OpenCL-Docs, pull request 1533, January 2026) and of
clang's `coop_mat` (llvm-project, pull request 221328, by the tests that it brings).
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS = 16
"""Steps of k that one call of any unit covers."""


DTYPES = {
    "fp16": (0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600),
    "bf16": (0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0),
}
"""What units multiply, and the bits of 0 to 6 in it."""
DPAS = "cl_intel_subgroup_matrix_multiply_accumulate"
"""Intel's extension that declares its functions."""
COOPERATIVE = "cl_khr_cooperative_matrix"
"""Khronos's draft of an extension, whose matrices a sub-group holds together."""
STANDARD = "-cl-std=CL3.0"
"""The compiler's option for texts with cooperative matrices: OpenCL C 1.2, which compilers take
without it, knows neither sub-groups nor `memory_scope_sub_group`."""

STAGED_ALIGNMENT = 128
"""Bytes at whose multiples fragments of cooperative matrices begin, in all memory."""


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
            block read instead, or both by loads of the sub-group.
        call: the function: in fp16, in bf16.
        more: arguments after the three operands.
        most_sums: floats of C that a lane keeps in registers beside the operands.
        is_intel: its sub-groups and block reads are functions of Intel's.
        dtypes: those that it multiplies; the types and functions above are in their order.
        is_cooperative: fragments are cooperative matrices. A lane knows the places of its sums only
            after C was stored to local memory; there it takes those that `row_of_lane` says.
    """

    lanes: int
    rows: int
    columns: int
    sums: int
    row_of_lane: str
    row_step: int
    left: tuple[str, ...]
    right: tuple[str, ...]
    first: str
    call: tuple[str, ...]
    more: str = ""
    most_sums: int = 64
    is_intel: bool = False
    dtypes: tuple[str, ...] = ("fp16", "bf16")
    is_cooperative: bool = False

    @property
    def staged_floats(self) -> int:
        """Floats of local memory through which a sub-group hands its lanes their sums."""
        return self.rows * self.columns if self.is_cooperative else 0

    @property
    def zero(self) -> str:
        """What a fragment of C is initialised with."""
        return "zero_sums()" if self.is_cooperative else "0.0f"


def _matrix(kind: str, rows: int, columns: int, use: str) -> str:
    shape = f"memory_scope_sub_group, {rows}, {columns}, CLK_COOPERATIVE_MATRIX_{use}"
    return f"{kind} __attribute__((coop_mat({shape})))"


def _cooperative_unit(lanes: int, rows: int) -> Unit:
    """Return a unit of 16 columns; the draft has no type of components for bf16."""
    return Unit(
        lanes, rows, 16, rows * 16 // lanes, "lane / 16", lanes // 16,
        (_matrix("half", rows, STEPS, "A"),), (_matrix("half", STEPS, 16, "B"),), "",
        ("coop_mat_mulAdd",), dtypes=("fp16",), is_cooperative=True,
    )  # fmt: skip


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
    # shapes and sub-groups of the units above, under the names that all makers may serve; last,
    # since makers' own functions were tried on more compilers
    "coop_mat16": _cooperative_unit(16, rows=8),
    "coop_mat32": _cooperative_unit(32, rows=16),
    "coop_mat64": _cooperative_unit(64, rows=16),
}  # fmt: skip
"""The units by the names of the instructions that `oclgen.opencl.probe` asks for."""


def text(unit: str, dtype: str) -> str:
    """Return the OpenCL C of a unit: types, loads and the product.

    The kernel writes FRAGMENT_LANES before its name and begins with `const int lane = LANE;`. Then
    it calls LOAD_LEFT(p) and LOAD_RIGHT(p), p the `__global const ushort *` of a fragment, and
    MULTIPLY(left, right, sums), which returns the new `sums_t`. Sums begin as `Unit.zero`.

    For cooperative matrices all work-items of a group call `held(sums, staged, lane)` together. It
    returns the vector of the lane's sums; `staged` are the sub-group's `staged_floats` floats.

    Args:
        unit: a name of `UNITS`.
        dtype: one of the unit's: "fp16" or "bf16".
    """
    one = UNITS[unit]
    which = one.dtypes.index(dtype)
    left, right, call = one.left[which], one.right[which], one.call[which]
    types = [f"typedef {left} left_t;", f"typedef {right} right_t;"]
    multiply = f"#define MULTIPLY(left, right, sums) {call}(left, right, sums{one.more})"
    if one.is_cooperative:
        return "\n".join([*_cooperative(one), *types, *_whole_matrices(one), multiply])
    lines = [
        *(_intel(one, call, left, right) if one.is_intel else _amd(one, dtype)),
        *types,
        f"typedef float{one.sums} sums_t;",
    ]
    if one.first:
        lines.append(f"#define LOAD_LEFT(p) {_load(left, one.first)}")
    lines += [f"#define LOAD_RIGHT(p) {_load(right, one.first or 'lane * 16')}", multiply]
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


def _cooperative(unit: Unit) -> list[str]:
    return [
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
        f"#pragma OPENCL EXTENSION {COOPERATIVE} : enable",
        "#ifdef cl_intel_required_subgroup_size // else the device has one size",
        f"#define FRAGMENT_LANES __attribute__((intel_reqd_sub_group_size({unit.lanes})))",
        "#else",
        "#define FRAGMENT_LANES",
        "#endif",
        f"#define LANE (int)get_local_id(0) % {unit.lanes}",
    ]


def _whole_matrices(unit: Unit) -> list[str]:
    """Return the functions around matrices.

    `coop_mat_load` and `coop_mat_init` have the type of the variable that they are assigned to, so
    each matrix is declared first. The draft wants pointers to the matrix's own type, not to `const`
    ones, and a stride of the type `size_t`.
    """
    places = [f"v[{row * unit.row_step * unit.columns}]" for row in range(unit.sums)]
    return [
        f"typedef {_matrix('float', unit.rows, unit.columns, 'ACCUMULATOR')} sums_t;",
        *_loading("left_t", "load_left", "ROW_MAJOR"),
        # columns of B lie one after another
        *_loading("right_t", "load_right", "COLUMN_MAJOR"),
        "sums_t zero_sums(void)",
        "{",
        "    sums_t matrix;",
        "    matrix = coop_mat_init(0.0f);",
        "    return matrix;",
        "}",
        f"float{unit.sums} held(sums_t sums, __local float *staged, const int lane)",
        "{",
        "    barrier(CLK_LOCAL_MEM_FENCE); // the sums that lay here before were read",
        "    coop_mat_store(staged, sums, CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR, "
        f"(size_t){unit.columns});",
        "    barrier(CLK_LOCAL_MEM_FENCE);",
        f"    __local const float *v = staged + ({unit.row_of_lane}) * {unit.columns} "
        f"+ lane % {unit.columns};",
        f"    return (float{unit.sums})({', '.join(places)});",
        "}",
        "#define LOAD_LEFT(p) load_left(p)",
        "#define LOAD_RIGHT(p) load_right(p)",
    ]


def _loading(kind: str, name: str, layout: str) -> list[str]:
    order = f"CLK_COOPERATIVE_MATRIX_LAYOUT_{layout}"
    return [
        f"{kind} {name}(__global const ushort *p)",
        "{",
        f"    {kind} matrix;",
        f"    matrix = coop_mat_load((__global half *)p, {order}, (size_t){STEPS});",
        "    return matrix;",
        "}",
    ]
