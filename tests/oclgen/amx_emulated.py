"""The tile registers of AMX in plain OpenCL C, for processors without them and for simulators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families.gemm import gemm_amx
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES

TILES_IN_C = """
#define TILE_REGISTERS \\
    uint amx_words[8][16][16]; int amx_rows[8] = {0}, amx_row_words[8] = {0}
#define SIZES_OF_TILE(t, rows, words) do { amx_rows[t] = rows; amx_row_words[t] = words; } while (0)
#define SET_TILES(rows, bytes, first_a, first_b) do { \\
    for (int t_ = 0; t_ < 8; ++t_) { \\
        const bool of_a_ = t_ >= (first_a) && t_ < (first_b); \\
        SIZES_OF_TILE(t_, t_ < (first_b) ? (rows) : (bytes) / 4, of_a_ ? (bytes) / 4 : 16); \\
    } \\
    for (int w_ = 0; w_ < 2048; ++w_) { amx_words[w_ / 256][w_ / 16 % 16][w_ % 16] = 0; } \\
} while (0)
#define SET_TILES_OF_TWO(rows, bytes, narrow, first) do { \\
    SET_TILES(rows, bytes, first, (first) + 1); \\
    SIZES_OF_TILE((first) + 2, rows, (narrow) / 4); SIZES_OF_TILE((first) + 3, (narrow) / 4, 16); \\
} while (0)
#define TILE_ROWS(t) amx_rows[t]
#define TILE_WORDS(t) amx_row_words[t]
#define EACH_WORD(t) \\
    for (int r_ = 0; r_ < TILE_ROWS(t); ++r_) for (int w_ = 0; w_ < TILE_WORDS(t); ++w_)
#define PAIR_AT(p, at) ((uint)(p)[at] | (uint)(p)[(at) + (sizeof(*(p)) == 2)] << 16)
#define WORD_AT(p, at) (sizeof(*(p)) == 2 ? PAIR_AT(p, at) : as_uint((float)(p)[at]))
#define TILE_ZERO(t) do { EACH_WORD(t) { amx_words[t][r_][w_] = 0; } } while (0)
#define TILE_LOAD(t, p, step) do { EACH_WORD(t) { \\
    const long at_ = (r_ * (long)(step) + 4 * w_) / (long)sizeof(*(p)); \\
    amx_words[t][r_][w_] = WORD_AT(p, at_); \\
} } while (0)
#define TILE_STORE(t, p, step) do { EACH_WORD(t) { \\
    (p)[r_ * (step) / 4 + w_] = as_float(amx_words[t][r_][w_]); \\
} } while (0)
#define LOW_OF(word) as_float((word) << 16)
#define HIGH_OF(word) as_float((word) & 0xffff0000u)
#define TILE_DOT(c, a, b) do { EACH_WORD(c) { \\
    float sum_ = as_float(amx_words[c][r_][w_]); \\
    for (int k_ = 0; k_ < amx_row_words[a]; ++k_) { \\
        const uint x_ = amx_words[a][r_][k_], y_ = amx_words[b][k_][w_]; \\
        sum_ += LOW_OF(x_) * LOW_OF(y_) + HIGH_OF(x_) * HIGH_OF(y_); \\
    } \\
    amx_words[c][r_][w_] = as_uint(sum_); \\
} } while (0)
#define TILES_DONE
"""
"""The macros of `tiles.cl.mako`, for bf16."""
HALVES_IN_C = TILES_IN_C.replace("as_float((word) << 16)", "of_half((word) & 0xffffu)").replace(
    "as_float((word) & 0xffff0000u)", "of_half((word) >> 16)"
)
OF_HALF = """
float of_half(uint bits)
{
    ushort half_bits = bits;
    return vload_half(0, (const __private half *)&half_bits);
}
"""


def tiles_in_c(dtype: str = "bf16") -> str:
    """Return what stands for the macros of tiles of a dtype."""
    return OF_HALF + HALVES_IN_C if dtype == "fp16" else TILES_IN_C


def emulated(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Return the device as one that has tiles, for kernels whose tiles are words of memory."""
    monkeypatch.setattr(gemm_amx, "tiles", tiles_in_c)
    instructions = device.limits.instructions | {*PRODUCTS.values()}
    return replace(device, limits=replace(device.limits, instructions=instructions))


def with_tiles(device: Device, monkeypatch: pytest.MonkeyPatch, in_c: bool) -> Device:
    """Return the device with tiles in C or its own; skip where it has none."""
    if in_c:
        return emulated(device, monkeypatch)
    if TILES not in device.limits.instructions:
        pytest.skip(f"{device.name} has no {TILES}")
    return device
