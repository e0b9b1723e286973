<%doc>
Packs the weights of `conv_mma` as the tiles that it puts into local memory, one behind the other:
[tiles of channels][steps of k][bytes of a tile] of each phase, swizzled; k is taps by channels in
whole chunks; zero where there is no weight.

A work-item writes one chunk; neighbours take neighbouring taps of a channel, which lie together.

word, chunk         integer type of an element; elements in 16 bytes
sizes               text of the phases' sizes; those that differ are tables by `phase`
tile, tile_k        rows of a tile, and its steps of k
row_bytes, swizzle  how a tile lies in local memory: see `Layout`
tf32                round to tf32, to nearest even
local_size          work-items per group
</%doc>
<%! from oclgen.families.parts.packing import IS_NO_NUMBER, NEAREST_TF32 %>\
typedef ${word} word;
typedef ${word}${chunk} words;
${sizes}
#define TAPS (TAPS_H * TAPS_W)
#define CHUNKS (STEPS * ${tile_k // chunk})
#define ROWS ((CHANNELS + ${tile - 1}) / ${tile} * ${tile})

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void conv_mma_pack(
    __global const word *restrict w, const long offset_w,
    const long w_channel, const long w_depth, const long w_row, const long w_column,
    __global words *restrict packed, const long offset_packed)
{
    const int phase = get_global_id(1);
    const int at = get_global_id(0);
    if (at >= ROWS * CHUNKS) {
        return;
    }
    // chunks of k that hold a weight: all taps of a row and of some channels, then what is beyond
    const int filled = TAPS * (DEPTH_PADDED / ${chunk});
    const bool beyond = at >= ROWS * filled;
    const int x = beyond ? at % ROWS : at / TAPS % ROWS;
    const int tap = beyond ? 0 : at % TAPS, c = beyond ? DEPTH : at / TAPS / ROWS * ${chunk};
    const int k = beyond ? at / ROWS * ${chunk} : tap * DEPTH_PADDED + c;
    word each[${chunk}];
    const long from = offset_w + x * w_channel + c * w_depth
        + (KERNEL_FIRST_H + tap / TAPS_W * KERNEL_STEP_H) * w_row
        + (KERNEL_FIRST_W + tap % TAPS_W * KERNEL_STEP_W) * w_column;
#pragma unroll
    for (int i = 0; i < ${chunk}; ++i) {
        each[i] = x < CHANNELS && c + i < DEPTH ? w[from + i * w_depth] : 0;
    }
    words value = vload${chunk}(0, each);
% if tf32:
    const words nearest = ${NEAREST_TF32};
    value = ${IS_NO_NUMBER} ? value : nearest;
% endif
    const int row = x % ${tile}, tile = x / ${tile} * STEPS + k / ${tile_k};
    packed += (offset_packed + PACKED_FIRST) / ${chunk} + tile * (long)${tile * row_bytes // 16};
    packed[row * ${row_bytes // 16} + (k % ${tile_k} / ${chunk} ^ ${swizzle})] = value;
}
