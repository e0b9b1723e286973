<%doc>
Repacks an operand of `gemm_mma` as the tiles that it puts into local memory, one behind the other:
[batch][tiles][steps of k][bytes of a tile], swizzled, zero past the edge. Copying a tile is then
one contiguous run whatever the operand's transpose, strides and alignment.

A work-group of 256 moves 64 rows of op(operand) by 128 bytes of k. An operand that does not lie
along k is transposed through local memory.

name                the kernel's and the workspace's name
tile, tile_k        rows of a tile, and its steps of k
row_bytes, swizzle  how a tile lies in local memory: see `Layout`
along_k             the operand is stored along k
bounded             the last tile ends with the last row, and is not filled up
word, chunk         integer type of an element; elements in 16 bytes
tf32                round to tf32, to nearest even
</%doc>
<%!
    from oclgen.render import TF32_NEAREST, TF32_ROUNDED
%>\
<%
    span = 8 * chunk
    words = f"{word}{chunk}"
    tile_chunks = tile * row_bytes // 16
    across = 64 // chunk
%>\
typedef ${word} word;
typedef ${words} words;

words load_words(__global const word *from, const int valid, const bool aligned)
{
    if (aligned && valid >= ${chunk}) {
        return *(__global const words *)from;
    }
    word each[${chunk}];
    for (int i = 0; i < ${chunk}; ++i) {
        each[i] = i < valid ? from[i] : 0;
    }
    return vload${chunk}(0, each);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void ${name}(
    __global const word *restrict from, const long offset_from, const int ld, const long batch,
    __global words *restrict to, const long offset_to, const int ld_to, const long batch_to,
    const int extent, const int k)
{
    const int id = (int)get_local_id(0);
    const int x0 = (int)get_group_id(1) * 64, k0 = (int)get_group_id(0) * ${span};
    const int steps = (k + ${tile_k - 1}) / ${tile_k};
    from += offset_from + (long)get_global_id(2) * batch;
    to += (offset_to + (long)get_global_id(2) * batch_to) / ${chunk};
    const bool aligned = (((size_t)from | (size_t)ld * sizeof(word)) & 15) == 0;
% if not along_k:
    __local word turned[64][${span} + 2];
    for (int i = id; i < ${span * across}; i += 256) {
        const int row = k0 + i / ${across}, x = i % ${across} * ${chunk};
        const words read = load_words(from + row * (long)ld + x0 + x, row < k ? extent - x0 - x : 0, aligned);
% for i in range(chunk):
        turned[x + ${i}][i / ${across}] = read.s${i};
% endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int i = id; i < 512; i += 256) {
        const int x = x0 + i / 8, p = k0 + i % 8 * ${chunk};
        if (${"x < extent && " if bounded else ""}p < steps * ${tile_k}) {
% if along_k:
            words value = load_words(from + x * (long)ld + p, x < extent ? k - p : 0, aligned);
% else:
            words value = vload${chunk}(0, &turned[i / 8][i % 8 * ${chunk}]);
% endif
% if tf32:
            const words nearest = ${TF32_NEAREST};
            value = ${TF32_ROUNDED};
% endif
            const int row = x % ${tile}, tile = x / ${tile} * steps + p / ${tile_k};
            to[tile * (long)${tile_chunks} + row * ${row_bytes // 16} + (p % ${tile_k} / ${chunk} ^ ${swizzle})] = value;
        }
    }
}
