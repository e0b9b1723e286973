"""Matrix units in plain OpenCL C: the interface of `mma_units`, for devices that have none.

Slow and obvious. What a kernel does around the units (copies, taps, edges, stores) runs on any
device with this in their place.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from oclgen.families.gemm import gemm_mma
from oclgen.families.gemm.gemm_mma_tiles import Layout, Pieces
from oclgen.opencl import ptx
from oclgen.problem import DTYPES, GemmProblem
from tests.sampled_builds import EMULATED

LOADS = {
    "fp16": "vload_half(0, (__local const half *)(tile + at))",
    "bf16": "as_float((uint)*(__local const ushort *)(tile + at) << 16)",
    "tf32": "*(__local const float *)(tile + at)",
}

STORES = {
    "fp16": "vstore_half_rte(v, 0, (half *)(p))",
    "bf16": "(*(p) = bf16_from_float(v))",
    "tf32": "(void)0",
}

TEXT = """
typedef __local uchar *local_t;
typedef struct {{ local_t tile; int first; }} place_t;
#define LOCAL(tiles) (tiles)
#define COPY_COMMIT()
#define AWAIT_TILE()
#define AWAIT_PRODUCTS()
#define STORE_PRIVATE(v, p) {store}
#define ROW(i, h) ({block} * (i) + 8 * (h) + {warp} + id % 32 / 4)
#define COLUMN(j) (8 * (j) + id % 4 * 2)

void copy_chunk(local_t to, __global const elem_t *from, const int valid)
{{
    for (int i = 0; i < 16; ++i) {{
        to[i] = i < valid * {elem_bytes} ? ((__global const uchar *)from)[i] : 0;
    }}
}}

#define copy_piece(to, from, valid, size) \\
    for (int i = 0; i < size; ++i) {{ \\
        (to)[i] = i < (valid) * {elem_bytes} ? ((__global const uchar *)(from))[i] : 0; \\
    }}
void copy_piece4(local_t to, __global const elem_t *from, const int valid)
{{
    copy_piece(to, from, valid, 4)
}}
void copy_piece8(local_t to, __global const elem_t *from, const int valid)
{{
    copy_piece(to, from, valid, 8)
}}
#define SHOW_TILE()

uint pair_of(const float2 value)
{{
    ushort both[2];
    STORE_PRIVATE(value.x, both);
    STORE_PRIVATE(value.y, both + 1);
    return both[0] | (uint)both[1] << 16;
}}

place_t moved(place_t place, const uint bytes)
{{
    place.tile += bytes;
    return place;
}}
#define MOVED(place, bytes) moved(place, bytes)
{sides}
void multiply(float (*acc)[{columns}], const place_t a, const place_t b)
{{
    const int id = get_local_id(0);
    for (int i = 0; i < {blocks_m}; ++i)
        for (int j = 0; j < {blocks_n}; ++j)
            for (int part = 0; part < 4; ++part)
                for (int k = 0; k < {tile_k}; ++k)
                    acc[i][4 * j + part] += of_a(a.tile, a.first + ROW(i, part / 2), k)
                        * of_b(b.tile, b.first + COLUMN(j) + part % 2, k);
}}
"""

SIDE = """
float of_{side}(const local_t tile, const int x, const int k)
{{
    const int at = {at};
    return {load};
}}

place_t place_{side}(local_t base, const int first, const int id)
{{
    place_t place = {{base + {start}, first}};
    return place;
}}
"""


def _at(lay: Layout) -> str:
    row, place = ("x", "k") if lay.along_k else ("k", f"x % {lay.panel}")
    line = "x" if lay.along_k else f"(x / {lay.panel} * {lay.tile_k} + k)"
    byte = f"{place} * {lay.elem_bytes}"
    return f"{line} * {lay.row_bytes} + ({byte} / 16 ^ {lay.swizzle(row)}) * 16 + {byte} % 16"


def units(
    problem: GemmProblem,
    config: gemm_mma.Config,
    unrounded: str,
    pieces: Iterable[Pieces] = (),
) -> str:
    """Return the emulation, called as `gemm_mma.units` is; nothing here rounds to tf32."""
    assert config.ahead >= 1
    assert set(unrounded) <= set("ab")
    assert {one.bytes for one in pieces} <= {4, 8}
    layouts = {role: config.layout(problem, role) for role in "ab"}
    sides = (
        SIDE.format(side=side, at=_at(lay), load=LOADS[problem.dtype], start=start)
        for (side, lay), start in zip(layouts.items(), (0, layouts["a"].bytes), strict=True)
    )
    wide, (blocks_m, blocks_n) = config.unit == "wgmma", config.blocks
    return EMULATED + TEXT.format(
        block=64 if wide else 16,
        warp="id / 32 % 4 * 16" if wide else "0",
        sides="".join(sides),
        store=STORES[problem.dtype],
        elem_bytes=DTYPES[problem.dtype],
        columns=4 * blocks_n,
        blocks_m=blocks_m,
        blocks_n=blocks_n,
        tile_k=config.tile_k,
    )


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `gemm_mma` and `conv_mma` compute with this; no kernel then needs a target of its own."""
    monkeypatch.setattr(gemm_mma, "units", units)
    monkeypatch.setattr(ptx, "with_target", lambda source, *_: source)
