"""Matrix units of attention in plain OpenCL C: each instruction of `attention_mma_units`, by lanes.

A warp's work-items exchange their registers through local memory, so that what each lane holds of
a block is checked on any device. Slow and obvious.
"""

from __future__ import annotations

import pytest

from oclgen.families.attention import attention_mma
from oclgen.opencl import ptx
from oclgen.problem import STORED_BYTES, AttentionProblem
from tests.sampled_builds import EMULATED

WORDS = 6
LOADS = {
    "fp16": "vload_half(0, (const half *)&bits)",
    "bf16": "as_float((uint)bits << 16)",
    "fp32": "as_float((uint)bits)",
}
CHUNKS = {
    2: {"items": 8, "holder": "k % 8 / 2", "item": "value_of(word >> k % 2 * 16)"},
    4: {"items": 4, "holder": "k % 4", "item": "as_float(word & 0xffffe000u)"},
}
"""By the bytes of an item: items of a chunk, the lane that has item k, and how it is read; of fp32
the units read 19 bits."""
STORES = {
    "fp16": "vstore_half_rte(value, 0, (half *)&bits)",
    "bf16": "bits = bf16_from_float(value)",
    "fp32": "bits = 0",
}
TEXT = """
typedef uint local_t;
#define UNIT_MEMORY \\
    __local uint exchanged[{words} * {work_items}]; \\
    __local uint *warp_words = exchanged + id / 32 * 32 * {words}; \\
    const local_t base = 0;
#define COPY_COMMIT()
#define COPY_WAIT(n)
#define copy_chunk(to, from, valid) copied(tiles + (to), from, valid)
#define copy_number(to, from, valid) (*(__local float *)(tiles + (to)) = (valid) ? *(from) : 0.0f)
#define power_of_two(value) exp2(value)
#define fragment(at) loaded(tiles, warp_words, id % 32, at, 0)
#define fragment_trans(at) loaded(tiles, warp_words, id % 32, at, 1)
#define MMA(c, a, b0, b1) multiplied(warp_words, id % 32, c, a, b0, b1)
#define COPIES_FOR_UNITS()
#define MULTIPLY_BEGIN()
#define STAYS_IN_LOOP(value)
#define MULTIPLY_SEND()
#define MULTIPLY_AWAIT(n)
#define SETTLE_SCORES(c)
#define SETTLE_VALUES(c)
#define SETTLE_ITEMS(c)
#define STEP_BY_STEP(pointer)
#define any_lane(found) true
#define OWN_AT(at) ((at) / 16)
#define SCORES_AT(at) ((at) / 16)
#define VALUES_AT(at) ((at) / 16)
#define SET_SCORES(c, a, at) wide(tiles, warp_words, id % 32, c, {own}, at, 0, {tile_n}, 0)
#define ADD_SCORES(c, a, at) wide(tiles, warp_words, id % 32, c, {own}, at, 1, {tile_n}, 0)
#define ADD_VALUES(c, a, at) wide(tiles, warp_words, id % 32, c, a, at, 1, {depth_v}, {tile_n})
#define ADD_ITEMS(c, a, at) wide(tiles, warp_words, id % 32, c, a, at, 1, {depth}, {tile_n})
#define pair_from_lane(pair, mask) as_uint(from_lane(as_float(pair), mask))
#define from_lane(value, mask) passed(warp_words, id % 32, value, mask)

void copied(__local uchar *to, __global const elem_t *from, const bool valid)
{{
    for (int i = 0; i < 16; ++i) {{
        to[i] = valid ? ((__global const uchar *)from)[i] : 0;
    }}
}}

ushort stored(const float value)
{{
    ushort bits;
    {store};
    return bits;
}}

uint pair_of(const float low, const float high)
{{
    return stored(low) | (uint)stored(high) << 16;
}}

float value_of(const ushort bits)
{{
    return {load};
}}

uint4 loaded(
    __local uchar *tiles, __local uint *words, const int lane, const uint at, const int turn)
{{
    words[lane] = at;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint found[4];
    for (int part = 0; part < 4; ++part) {{
        uint pair[2];
        for (int i = 0; i < 2; ++i) {{
            const int along = lane % 4 * 2 + i;
            const int row = turn ? along : lane / 4, column = turn ? lane / 4 : along;
            pair[i] = ((__local ushort *)(tiles + words[8 * part + row]))[column];
        }}
        found[part] = pair[0] | pair[1] << 16;
    }}
    barrier(CLK_LOCAL_MEM_FENCE);
    return (uint4)(found[0], found[1], found[2], found[3]);
}}

/* of a word with item k of a row or column */
float item_of(const uint word, const int k)
{{
    return {item};
}}

/* 16 rows by 8 columns of two chunks */
void multiplied(
    __local uint *words, const int lane, float *c, const uint4 a, const uint b0, const uint b1)
{{
    vstore4(a, 0, words + {words} * lane);
    words[{words} * lane + 4] = b0;
    words[{words} * lane + 5] = b1;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int part = 0; part < 4; ++part) {{
        const int row = lane / 4, column = lane % 4 * 2 + part % 2, low = part / 2;
        for (int k = 0; k < 2 * {items}; ++k) {{
            const uint left = words[{words} * (row * 4 + {holder}) + low + k / {items} * 2];
            const uint right = words[{words} * (column * 4 + {holder}) + 4 + k / {items}];
            c[part] += item_of(left, k) * item_of(right, k);
        }}
    }}
    barrier(CLK_LOCAL_MEM_FENCE);
}}

/* 16 items of a warp's rows that lie in local memory as `wide` reads its tile */
uint4 rows_at(__local uchar *tiles, const int id, const uint place)
{{
    const uint at = place * 16;
    uint found[4];
    for (int part = 0; part < 4; ++part) {{
        const int row = id / 32 % 4 * 16 + id % 32 / 4 + part % 2 * 8;
        const int inside = at % 128 + id % 4 * 4 + part / 2 * 16;
        const int byte = at / 128 * 128 + row * 128 + (inside / 16 ^ row % 8) * 16 + inside % 16;
        found[part] = *(__local uint *)(tiles + byte);
    }}
    return (uint4)(found[0], found[1], found[2], found[3]);
}}

/* a warp's 16 rows of wgmma; panels of 128 bytes, whose chunks are swizzled by their row */
void wide(
    __local uchar *tiles, __local uint *words, const int lane, float *c, const uint4 a,
    const uint place, const int add, const int columns, const int steps)
{{
    const uint at = place * 16;
    vstore4(a, 0, words + {words} * lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < columns / 2; ++i) {{
        const int row = lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2, low = i / 2 % 2;
        float sum = add ? c[i] : 0.0f;
        for (int k = 0; k < 16; ++k) {{
            const uint left = words[{words} * (row * 4 + k % 8 / 2) + low + k / 8 * 2];
            const int line = steps ? k : column;
            const int inside = steps ? column % 64 * 2 : at % 128 + 2 * k;
            const int panel = steps ? at + column / 64 * steps * 128 : at / 128 * 128;
            const int byte = panel + line * 128 + (inside / 16 ^ line % 8) * 16 + inside % 16;
            sum += value_of(left >> k % 2 * 16) * value_of(*(__local ushort *)(tiles + byte));
        }}
        c[i] = sum;
    }}
    barrier(CLK_LOCAL_MEM_FENCE);
}}

float passed(__local uint *words, const int lane, const float value, const int mask)
{{
    words[lane] = as_uint(value);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float other = as_float(words[lane ^ mask]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return other;
}}
"""


def units(problem: AttentionProblem, config: attention_mma.Config) -> str:
    """Return the emulation, called as `attention_mma.units` is."""
    depths = config.depths(problem)
    return by_lanes(config.work_items, problem.dtype, config.tile_n, depths, config.keep)


def by_lanes(
    work_items: int, dtype: str, tile_n: int = 0, depths: tuple[int, int] = (0, 0),
    keep: bool = True,
) -> str:  # fmt: skip
    """Return the text for units of a dtype; of attention it is told how its tiles lie."""
    return EMULATED + TEXT.format(
        words=WORDS, work_items=work_items, load=LOADS[dtype], store=STORES[dtype], tile_n=tile_n,
        depth=depths[0], depth_v=depths[1], own="a" if keep else "rows_at(tiles, id, a)",
        **CHUNKS[STORED_BYTES[dtype]],
    )  # fmt: skip


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `attention_mma` compute with this.

    Loops around units stay loops: written out, a processor's compiler takes minutes for them.
    """
    text = attention_mma.text_of
    monkeypatch.setattr(
        attention_mma, "text_of", lambda *given: text(*given).replace("#pragma unroll\n", "")
    )
    monkeypatch.setattr(attention_mma, "units", units)
    monkeypatch.setattr(ptx, "with_target", lambda source, *_: source)
