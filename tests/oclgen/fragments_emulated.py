"""Units of `oclgen.opencl.fragments` in plain OpenCL C, after the words of their makers.

The text of a unit stays as it is: its loads run, and what its compiler brings are macros here.
Lanes meet in local memory, so every device can run it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from oclgen.opencl import fragments
from tests.sampled_builds import EMULATED

KEPT = fragments.text


class Place(NamedTuple):
    """Lane and element of A[x][k], likewise of B; row and column of C that a lane holds as `v`.

    The drafts leave the places in cooperative matrices to the device. Here B lies transposed, and C
    from the last row on, five columns further: no lane holds the sums that it writes in the end.
    """

    left: tuple[str, str]
    right: tuple[str, str]
    row: str
    column: str = "lane % {columns}"


def _opaque(lanes: int, rows: int) -> Place:
    of_a, of_b = "(x * 16 + k)", "(k * 16 + x)"
    return Place(
        (f"{of_a} % {lanes}", f"{of_a} / {lanes}"),
        (f"{of_b} % {lanes}", f"{of_b} / {lanes}"),
        f"{rows - 1} - (v * {lanes} + lane) / 16",
        "(lane + 5) % 16",
    )


PLACES = {
    "dpas8": Place(("k / 2", "2 * x + k % 2"), ("x", "k"), "v"),
    "dpas16": Place(("k", "x"), ("x", "k"), "v"),
    "wmma": Place(("x + lane / 16 * 16", "k"), ("x + lane / 16 * 16", "k"), "2 * v + lane / 16"),
    "wmma_gfx12": Place(("x + k / 8 * 16", "k % 8"), ("x + k / 8 * 16", "k % 8"),
                        "v + lane / 16 * 8"),
    "mfma": Place(("x + k / 4 * 16", "k % 4"), ("x + k / 4 * 16", "k % 4"), "v + lane / 16 * 4"),
    "coop_mat16": _opaque(16, 8),
    "coop_mat32": _opaque(32, 16),
    "coop_mat64": _opaque(64, 16),
}  # fmt: skip

HEAD = """
#define {extension} 1
#define intel_reqd_sub_group_size(lanes)
#define get_sub_group_local_id() (get_local_id(0) % {lanes})
#define half16 short16
#define half8 short8
#define half4 short4
#define WORD(p, i) (p)[(i) * {lanes} + lane]
#define FOUR(p, i) WORD(p, i), WORD(p, i + 1), WORD(p, i + 2), WORD(p, i + 3)
#define EIGHT(p) FOUR(p, 0), FOUR(p, 4)
#define intel_sub_group_block_read8(p) (uint8)(EIGHT(p))
#define intel_sub_group_block_read_us8(p) (ushort8)(EIGHT(p))
#define {call}({operands}) emulated(exchange, {operands})
"""

COOPERATIVE = """
#define get_max_sub_group_size() {lanes}
#define coop_mat(scope, rows, columns, use) ext_vector_type(HELD_##use)
#define HELD_CLK_COOPERATIVE_MATRIX_A {lefts}
#define HELD_CLK_COOPERATIVE_MATRIX_B {rights}
#define HELD_CLK_COOPERATIVE_MATRIX_ACCUMULATOR {sums}
#define coop_mat_init(value) (float{sums})(value)
#define coop_mat_load(p, layout, stride) LOAD_##layout((__global const ushort *)(p), stride)
#define LOAD_CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR loaded_rows
#define LOAD_CLK_COOPERATIVE_MATRIX_LAYOUT_COLUMN_MAJOR loaded_columns
#define coop_mat_store(p, matrix, layout, stride) STORE_##layout(p, matrix, stride)
#define STORE_CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR stored_rows

short{lefts} loaded_rows(__global const ushort *p, const size_t stride)
{{
    ushort held[{lefts}];
    for (int i = 0; i < {lefts}; ++i) {{
        const int e = i * {lanes} + get_local_id(0) % {lanes};
        held[i] = p[e / 16 * stride + e % 16];
    }}
    return as_short{lefts}(vload{lefts}(0, held));
}}

short{rights} loaded_columns(__global const ushort *p, const size_t stride)
{{
    ushort held[{rights}];
    for (int i = 0; i < {rights}; ++i) {{
        const int e = i * {lanes} + get_local_id(0) % {lanes};
        held[i] = p[e % 16 * stride + e / 16];
    }}
    return as_short{rights}(vload{rights}(0, held));
}}

void stored_rows(__local float *p, const float{sums} sums, const size_t stride)
{{
    float held[{sums}];
    vstore{sums}(sums, 0, held);
    for (int v = 0; v < {sums}; ++v) {{
        const int lane = get_local_id(0) % {lanes}, row = {row};
        p[row * stride + {column}] = held[v];
    }}
}}
"""
"""What the drafts of cooperative matrices bring, the matrices as parts of each lane."""

TAIL = """
float value_of(__local const ushort *bits)
{{
    return {value};
}}

sums_t emulated(__local ushort *exchange,
                const left_t left, const right_t right, const sums_t sums{unused})
{{
    const int id = (int)get_local_id(0), lane = id % {lanes};
    __local const ushort *of_sub = exchange + id / {lanes} * {lanes} * 32;
    barrier(CLK_LOCAL_MEM_FENCE);
    vstore{lefts}(as_ushort{lefts}(left), 0, exchange + id * 32);
    vstore{rights}(as_ushort{rights}(right), 0, exchange + id * 32 + 16);
    barrier(CLK_LOCAL_MEM_FENCE);
    float all[{sums}];
    vstore{sums}(sums, 0, all);
    for (int v = 0; v < {sums}; ++v) {{
        for (int k = 0; k < 16; ++k) {{
            int x = {row};
            const float a = value_of(of_sub + ({left_lane}) * 32 + {left_at});
            x = {column};
            all[v] += a * value_of(of_sub + ({right_lane}) * 32 + 16 + {right_at});
        }}
    }}
    return vload{sums}(0, all);
}}
"""

VALUES = {
    "fp16": "vload_half(0, (__local const half *)bits)",
    "bf16": "as_float((uint)*bits << 16)",
}
MOST_ITEMS = 256
"""Work-items of a group that the emulation has room for."""


def text(unit: str, dtype: str) -> str:
    """Return a unit's text as `fragments.text` has it, with what its compiler would bring."""
    one, place, which = (
        fragments.UNITS[unit],
        PLACES[unit],
        fragments.UNITS[unit].dtypes.index(dtype),
    )
    held = {"int8": 16} | {f"{kind}{n}": n for kind in ("short", "half") for n in (4, 8, 16)}
    lefts = held.get(one.left[which], one.rows * 16 // one.lanes)
    rights = held.get(one.right[which], one.columns * 16 // one.lanes)
    extra = one.more.count(",")
    names = ", ".join(["left", "right", "sums", *(f"more{i}" for i in range(extra))])
    head = HEAD.format(
        extension=fragments.DPAS, lanes=one.lanes, call=one.call[which], operands=names
    )
    if one.is_cooperative:
        head += COOPERATIVE.format(
            lanes=one.lanes,
            lefts=lefts,
            rights=rights,
            sums=one.sums,
            row=place.row,
            column=place.column,
        )
    tail = TAIL.format(
        value=VALUES[dtype], lanes=one.lanes, sums=one.sums, row=place.row,
        column=place.column.format(columns=one.columns), lefts=lefts, rights=rights,
        left_lane=place.left[0], left_at=place.left[1],
        right_lane=place.right[0], right_at=place.right[1],
        unused="".join(f", const int more{i}" for i in range(extra)),
    )  # fmt: skip
    body = re.sub(r"#pragma OPENCL EXTENSION .*", "", KEPT(unit, dtype))
    body = body.replace("typedef half ", "typedef short ")  # not every device has the type
    shared = f"; __local ushort exchange[{32 * MOST_ITEMS}]"
    return EMULATED + head + re.sub(r"(#define LANE .*)", rf"\1{shared}", body) + tail


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels on units of `fragments` compute with this."""
    monkeypatch.setattr(fragments, "text", text)
