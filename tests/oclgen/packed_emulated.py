"""What `packed_mma` asks of NVIDIA's GPUs in plain OpenCL C, for devices that have none of it."""

from __future__ import annotations

import pytest

from oclgen.families.packed import packed_mma
from oclgen.packed_problem import PackedProblem
from tests.oclgen.attention_emulated import by_lanes

TEXT = """
#define COPY_BYTES(to, from, valid) copied_bytes(tiles + (to), from, valid)
#define TILE_BEGIN(at)
#define TILE_AWAIT(at, parity)
#define BRING(to, from, bytes, at) brought_bytes(tiles + (to), from, bytes)
#define LOAD_X(value, p, valid) value = (valid) ? {load_x} : 0
#define WORDS_AT(p) (__global const uint *)(p)
#define LOAD_PAIR(value, p, valid) value = (valid) ? vload2(0, WORDS_AT(p)) : (uint2)(0)
#define LOAD_FOUR(value, p, valid) value = (valid) ? vload4(0, WORDS_AT(p)) : (uint4)(0)
#define masked(a, mask, bits) ((a) & (mask) | (bits))
#define low_halves(a, b) ((a) & 0xffffu | (b) << 16)
#define high_halves(a, b) ((a) >> 16 | (b) & 0xffff0000u)
#define even_bytes(a, above) ((a) & 0x00ff00ffu | (above) * 0x01000100u)
#define odd_bytes(a, above) ((a) >> 8 & 0x00ff00ffu | (above) * 0x01000100u)
#define low_of(pair) value_of(pair)
#define high_of(pair) value_of((pair) >> 16)
#define MMA_HERE MMA
#define WARP_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define PASS(value, to) *(volatile __global float *)(to) = value
#define TAKE(value, from) value = *(volatile __global const float *)(from)
#define FENCE_ALL_GROUPS() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define SUMS_BEGIN(id, warps)
#define SUMS_SENT(lane)
#define SUMS_AWAIT(parity) barrier(CLK_LOCAL_MEM_FENCE)

void copied_bytes(__local uchar *to, __global const uchar *from, const int valid)
{{
    for (int i = 0; i < {width}; ++i) {{
        to[i] = i < valid ? from[i] : 0;
    }}
}}

void brought_bytes(__local uchar *to, __global const uchar *from, const int bytes)
{{
    for (int i = 0; i < bytes; ++i) {{
        to[i] = from[i];
    }}
}}

uint difference(const uint a, const uint b)
{{
    return stored(value_of(a) - value_of(b))
        | (uint)stored(value_of(a >> 16) - value_of(b >> 16)) << 16;
}}
"""


def units(problem: PackedProblem, config: packed_mma.Config) -> str:
    """Return the emulation, called as `packed_mma.units` is; weights and pieces of x are exact."""
    lanes = by_lanes(config.work_items, "bf16" if problem.dtype == "bf16" else "fp16")
    # what is stored is exact; inlined, each barrier costs a processor's compiler seconds
    lanes = lanes.replace("bf16_from_float(value)", "as_uint(value) >> 16")
    lanes = lanes.replace("void multiplied(", "__attribute__((noinline)) void multiplied(")
    items = config.text(problem).items
    load_x = f"vload{items}(0, p)"
    if problem.dtype != "fp32":
        load_x = f"as_uint{items // 2}({load_x})"
    width = packed_mma.tile(problem, config.tile_k).width
    return lanes + TEXT.format(load_x=load_x, width=width)


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `packed_mma` compute with this."""
    monkeypatch.setattr(packed_mma, "units", units)
