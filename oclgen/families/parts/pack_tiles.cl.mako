<%doc>
Repacks matrices for GPUs as the tiles that a product puts into local memory, one behind the other:
[batch][tiles][steps of k][words of a tile], zero past the edge. Copying a tile is then one
contiguous run whatever the operand's transpose, strides and alignment.

A work-group of 256 moves 64 neighbours of a line by 128 bytes. Where neighbours of the source are
no neighbours of a tile they turn in local memory.

name            the kernel's and the workspace's name
word, chunk     integer type of an element; elements in 16 bytes
rows, steps     rows, and steps of k, that a work-group moves
along_k         neighbours of the source are steps of k, else rows
tile_along_k    the same of a tile
tile, tile_k    rows of a tile, and its steps of k
within          chunk of a tile that has this `row` and this step `p` of it
bound           rows that are written, "" where work-groups divide them
shifted         chunks of the source that are not aligned are read by two around them
tf32            round to tf32, to nearest even
</%doc>
<%!
    from oclgen.render import TF32_NEAREST, TF32_ROUNDED
%>\
<%namespace name="share" file="shifted.cl.mako"/>\
<%
    turned = along_k != tile_along_k
    words = f"{word}{chunk}"
    along, across = "i % 8 * " + str(chunk), "i / 8"
    x, p = (across, along) if tile_along_k else (along, across)
    width, lines = 64 // chunk, 8 * chunk
    read_x, read_p = ("x0 + line", "k0 + at") if along_k else ("x0 + at", "k0 + line")
    def read(x, p):
        if along_k:
            return f"load_words(from + ({x}) * (long)ld + {p}, {x} < extent ? k - ({p}) : 0, aligned)"
        return f"load_words(from + ({p}) * (long)ld + {x}, {p} < k ? extent - ({x}) : 0, aligned)"
%>\
typedef ${word} word;
typedef ${words} words;

% if shifted:
${share.shifted(16 // chunk)}\
% endif
words load_words(__global const word *from, const int valid, const bool aligned)
{
    if (aligned && valid >= ${chunk}) {
        return *(__global const words *)from;
    }
% if shifted:
    if (valid >= ${2 * chunk}) {
        // both chunks around these lie in the row's memory
        const size_t shift = (size_t)from & 15;
        __global const uint4 *around = (__global const uint4 *)((__global const uchar *)from - shift);
        return as_${words}(shifted(around[0], around[1], (int)shift));
    }
% endif
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
    const int x0 = (int)get_group_id(1) * ${rows}, k0 = (int)get_group_id(0) * ${steps};
    const int steps = (k + ${tile_k - 1}) / ${tile_k};
    from += offset_from + (long)get_global_id(2) * batch;
    to += (offset_to + (long)get_global_id(2) * batch_to) / ${chunk};
    const bool aligned = (((size_t)from | (size_t)ld * sizeof(word)) & 15) == 0;
% if turned:
    __local word turned[64][${lines} + 2];
    for (int i = id; i < ${lines * width}; i += 256) {
        const int line = i / ${width}, at = i % ${width} * ${chunk};
        const words read = ${read(read_x, read_p)};
% for i in range(chunk):
        turned[at + ${i}][line] = read.s${i};
% endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int i = id; i < 512; i += 256) {
        const int x = x0 + ${x}, p = k0 + ${p};
        if (${f"x < {bound} && " if bound else ""}p < steps * ${tile_k}) {
% if turned:
            words value = vload${chunk}(0, &turned[i / 8][i % 8 * ${chunk}]);
% else:
            words value = ${read("x", "p")};
% endif
% if tf32:
            const words nearest = ${TF32_NEAREST};
            value = ${TF32_ROUNDED};
% endif
            const int row = x % ${tile}, tile = x / ${tile} * steps + p / ${tile_k};
            to[tile * (long)${tile * tile_k // chunk} + ${within}] = value;
        }
    }
}
