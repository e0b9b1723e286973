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
products, together  products, and groups of each, with zeros between them
channels, depth     of a group: results, and channels that are summed over
group_step          from a group's weights to the next one's, "" without groups
</%doc>
<%!
    from oclgen.render import TF32_NEAREST, TF32_ROUNDED
%>\
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
% if group_step:
    const int part = x / ${channels}; // group within the product
    const long from = offset_w + x % ${channels} * w_channel
        + ((long)get_global_id(2) * ${together} + part) * (${group_step})
% else:
    const long from = offset_w + x * w_channel + c * w_depth
% endif
        + (KERNEL_FIRST_H + tap / TAPS_W * KERNEL_STEP_H) * w_row
        + (KERNEL_FIRST_W + tap % TAPS_W * KERNEL_STEP_W) * w_column;
#pragma unroll
    for (int i = 0; i < ${chunk}; ++i) {
% if group_step:
        const bool is_own = x < CHANNELS && c + i < DEPTH && (c + i) / ${depth} == part;
        each[i] = is_own ? w[from + (c + i) % ${depth} * w_depth] : 0;
% else:
        each[i] = x < CHANNELS && c + i < DEPTH ? w[from + i * w_depth] : 0;
% endif
    }
    words value = vload${chunk}(0, each);
% if tf32:
    const words nearest = ${TF32_NEAREST};
    value = ${TF32_ROUNDED};
% endif
    const int row = x % ${tile}, tile = x / ${tile} * STEPS + k / ${tile_k};
    packed += (offset_packed + PACKED_FIRST) / ${chunk} + tile * (long)${tile * row_bytes // 16};
% if products > 1:
    packed += (long)get_global_id(2) * (PACKED_STEP / ${chunk});
% endif
    packed[row * ${row_bytes // 16} + (k % ${tile_k} / ${chunk} ^ ${swizzle})] = value;
}
