<%doc>
Repacks bf16 images for the tile registers of AMX as words, of a position and of the one `apart` behind
it. Positions of all images lie in one line, in which rows have `positions` (see `flat_positions`).
What lies in the padding or between results is zero; columns that fill up a tile are what follows.

Packed are [groups][tiles of 16 columns][planes] of words. A column is a channel, or one under a tap of
a row; columns of one tap are neighbours. A tile lies as [words][16 columns], the tile's operand B, or
`by_rows` as [steps of 16 words][16 columns][16 words], its operand A.

A work-item packs `span` words of a tile: it copies elements into place, and turns squares of 16 x 16
words in registers where neighbours in memory become rows. Neighbours pack other tiles and planes of the
same positions, which share lines of memory.

kernel              name
in_pixels           channels of a pixel are neighbours, else elements of a row
by_rows             layout of a tile
groups, channels    of the images; channels of a group
columns             of a group
span                words per work-item, a multiple of 16
rows, positions     rows of an image in the line, and positions of a row
height, width       of the images
step_h, step_w      distance of positions' elements
origins             first row and column of each plane
tap_step            distance of the taps that columns have
transpose           text of the function transpose(rows)
</%doc>
<%!
    from oclgen.families.parts.expressions import load, store
    from oclgen.families.parts.squares import SQUARE
%>\
<%
    tiles = -(-columns // SQUARE)
    # positions of a channel, or channels of a position, lie side by side on the way
    place = (lambda i, j: f"({i}) * 16 + {j}") if in_pixels else (lambda i, j: f"({j}) * {span + 32} + {i}")
    turned = in_pixels == by_rows
    pixel = groups * channels if in_pixels else 1
    # columns of a tile that lie side by side in memory, and vectors of a tap's channels
    contiguous = in_pixels and columns > channels and tap_step == groups == 1
    whole = in_pixels and (columns == channels or contiguous)
    vec = channels if in_pixels and not whole and channels in (2, 4, 8) else 1
%>\
% if turned:
${transpose}
% endif
constant int origins[][2] = {${", ".join(f"{{{h}, {w}}}" for h, w in origins)}};

// Copies `count` columns, which begin with a channel of a tap, to words from position `first` on.
void lay(
    ushort *to, __global const ushort *from, __global const ushort *end, const int first, const int batch,
    const int origin_h, const int origin_w, const int channel, const int count)
{
    // positions of a row whose columns are all stored: from low to high
    const int beyond = ${f"(channel + count - 1) / {channels}" if contiguous else 0};
    const int low = min(max((${step_w - 1} - origin_w) / ${step_w}, 0), ${positions});
    const int high = min(max((${width + step_w - 1} - origin_w - beyond) / ${step_w}, low), ${positions});
    int line = first / ${positions};
    for (int at = -(first % ${positions}); at < ${span}; at += ${positions}, ++line) {
        const int image = line / ${rows}, h = line % ${rows} * ${step_h} + origin_h;
        const int left = max(at, 0), last = min(at + ${positions}, ${span});
        const bool stored = image < batch && h >= 0 && h < ${height};
        const int begin = stored ? clamp(at + low, left, last) : last, stop = stored ? clamp(at + high, begin, last) : last;
% if in_pixels:
        __global const ushort *row = from + ((image * (long)${height} + h) * ${width} + origin_w - at * ${step_w}) * ${pixel} + channel;
        for (int i = left; i < last; ++i) {
            __global const ushort *source = row + i * ${step_w * pixel}L;
            if (i >= begin && i < stop) {
% if vec > 1:
                ${store(vec, load(vec, "source"), "to + i * 16")};
                continue;
% elif whole:
                // of a narrower tile more is read, for columns that no one needs
                if (source + 16 <= end) {
                    vstore16(vload16(0, source), i, to);
                    continue;
                }
% endif
            }
            for (int c = 0; c < count; ++c) {
                const int w = (i - at) * ${step_w} + origin_w${f" + (channel + c) / {channels}" if contiguous else ""};
                to[i * 16 + c] = stored && w >= 0 && w < ${width} ? source[c] : 0;
            }
        }
% else:
        // vectors reach beyond a row; what follows is written later
        __global const ushort *row = from + (image * ${groups * channels}L * ${height} + h) * ${width} + origin_w - at * ${step_w};
        for (int i = left; i < begin; i += 16) {
            vstore16((ushort16)(0), 0, to + i);
        }
        int i = begin;
% if step_w <= 2:
        for (; i < stop && row + i * ${step_w} + ${16 * step_w} <= end; i += 16) {
% if step_w == 1:
            vstore16(vload16(0, row + i), 0, to + i);
% else:
            const ushort16 near = vload16(0, row + 2 * i), far = vload16(1, row + 2 * i);
            vstore16((ushort16)(near.even, far.even), 0, to + i);
% endif
        }
% endif
        for (; i < stop; ++i) {
            to[i] = row[i * ${step_w}];
        }
        for (i = stop; i < last; i += 16) {
            vstore16((ushort16)(0), 0, to + i);
        }
% endif
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${kernel}(
    __global const ushort *restrict from, const long offset_from,
    __global uint *restrict packed, const long offset_packed,
    const int batch, const int apart, const int words)
{
    const int first = (int)get_global_id(2) * ${span}, some = min(words - first, ${span});
    const int plane = (int)get_global_id(1), tile = (int)get_global_id(0) % ${tiles};
    const int group = (int)get_global_id(0) / ${tiles};
    from += offset_from;
    __global const ushort *end = from + batch * ${groups * channels * height * width}L;
    packed += offset_packed + ((group * ${tiles}L + tile) * ${len(origins)} + plane) * words * 16 + first * 16L;

    ushort flat[2][${16 * (span + 32)}];
    for (int part = 0; part < 2; ++part) {
        const int count = min(${columns} - tile * 16, 16);
        __global const ushort *of_group = from + group * ${channels if in_pixels else channels * height * width}L;
        for (int j = 0, next; j < count; j = next) {
            const int tap = (tile * 16 + j) / ${channels}, channel = (tile * 16 + j) % ${channels};
            next = ${"count" if whole else f"min(count, j + {channels} - channel)" if in_pixels else "j + 1"};
            lay(flat[part] + ${place(0, "j")}, of_group${"" if in_pixels else f" + channel * {height * width}L"}, end, first + part * apart, batch,
                origins[plane][0], origins[plane][1] + tap * ${tap_step}, channel, next - j);
        }
    }
    for (int i = 0; i < some; i += 16) {
        ${"float16 square[16]" if turned else "uint16 row"};
% for k in range(SQUARE):
<% at = place(f"i + {k}", 0) if in_pixels else place("i", k) %>\
        ${f"square[{k}] = as_float16" if turned else "row = "}(convert_uint16(vload16(0, flat[0] + ${at})) | convert_uint16(vload16(0, flat[1] + ${at})) << 16);
% if not turned:
        vstore16(row, ${k}, packed + i * 16L);
% endif
% endfor
% if turned:
        transpose(square);
% for k in range(SQUARE):
        vstore16(as_uint16(square[${k}]), ${k}, packed + i * 16L);
% endfor
% endif
    }
}
