<%doc>
Repacks images of 16-bit items as pixels with zeros around them: [images * slices * groups][PACKED_H]
[PACKED_W][PIXEL], where PIXEL is the channels of a group, filled up with zeros.

A work-item fills ROWS rows. Planes turn in registers, 16 pixels x 16 channels at a time; pixels are
counted through rows, of which a small image has short ones. The last pixels and the last channels
of an image are moved a second time where 16 does not divide them.

sizes               names and values: DEPTH channels of a group, HEIGHT and WIDTH of what is read,
                    PAD_H and PAD_W zeros before it; SLICES of a volume that is read, PAD_D slices of
                    zeros before it, and PACKED_D in all
in_pixels           channels of a pixel are neighbours, else pixels of a plane
depth, pixel        channels of a group that are read, and items of a pixel that are written
whole               a plane has 16 pixels or more
</%doc>
<%!
    from oclgen.families.parts.expressions import chunks, lanes_of
    from oclgen.families.parts.squares import SQUARE

    def some(row, start, width):
        return lanes_of(row, 16, start, width)
%>\
<%namespace name="squares" file="squares.cl.mako"/>\
% for name, value in sizes.items():
#define ${name} ${value}
% endfor

void clear(__global ushort *to, const int count)
{
    for (int i = 0; i < count; ++i) {
        to[i] = 0;
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_amx_images(
    __global const ushort *restrict from, const long offset_from,
    __global ushort *restrict packed, const long offset_packed)
{
    const int first = (int)get_global_id(0) * ROWS, last = min(first + ROWS, PACKED_H);
    const int matrix = get_global_id(1), group = matrix % GROUPS;
    const int slice = matrix / GROUPS % PACKED_D - PAD_D, rows = slice >= 0 && slice < SLICES ? HEIGHT : 0;
    const long image = matrix / GROUPS / PACKED_D * SLICES + slice;
    packed += offset_packed + matrix * (long)(PACKED_H * PACKED_W * PIXEL);
% if in_pixels:
    from += offset_from + (image * (HEIGHT * WIDTH * GROUPS) + group) * DEPTH;
% else:
    from += offset_from + (image * GROUPS + group) * (DEPTH * HEIGHT * WIDTH);
% endif

    for (int y = first; y < last; ++y) {
        __global ushort *row = packed + y * (PACKED_W * PIXEL);
        if (y < PAD_H || y >= PAD_H + rows) {
            clear(row, PACKED_W * PIXEL);
            continue;
        }
        clear(row, PAD_W * PIXEL);
        clear(row + (PAD_W + WIDTH) * PIXEL, (PACKED_W - PAD_W - WIDTH) * PIXEL);
% if in_pixels:
        __global const ushort *pixels = from + (y - PAD_H) * (WIDTH * GROUPS * DEPTH);
        row += PAD_W * PIXEL;
% if depth == pixel and sizes["GROUPS"] == 1:
        for (int i = 0; i < WIDTH * DEPTH; ++i) {
            row[i] = pixels[i];
        }
% else:
        for (int x = 0; x < WIDTH; ++x) {
            for (int c = 0; c < DEPTH; ++c) {
                row[x * PIXEL + c] = pixels[x * (GROUPS * DEPTH) + c];
            }
% if depth != pixel:
            clear(row + x * PIXEL + DEPTH, PIXEL - DEPTH);
% endif
        }
% endif
% endif
    }
% if not in_pixels:
    const int end = (min(last, PAD_H + rows) - PAD_H) * WIDTH;
% if whole:
% if depth >= SQUARE:
    for (int start = 0; start < DEPTH; start += ${SQUARE}) {
        const int c = min(start, DEPTH - ${SQUARE});
% else:
    {
        const int c = 0;
% endif
        for (int next = max(first - PAD_H, 0) * WIDTH; next < end; next += ${SQUARE}) {
            const int f = min(next, HEIGHT * WIDTH - ${SQUARE});
            __global const ushort *plane = from + c * (HEIGHT * WIDTH) + f;
% for i in range(SQUARE):
            ushort16 row${i} = ${f"vload16(0, plane + {i} * (HEIGHT * WIDTH))" if i < depth else "0"};
% endfor
${squares.turn("ushort", "            ")}\
            int x = f % WIDTH;
            __global ushort *to = packed + ((f / WIDTH + PAD_H) * PACKED_W + x + PAD_W) * PIXEL + c;
% for i in range(SQUARE):
% for start, width in chunks(min(pixel, SQUARE), SQUARE):
            ${f"vstore{width}({some(f'row{i}', start, width)}, 0, to + {start})" if width > 1 else f"to[{start}] = {some(f'row{i}', start, 1)}"};
% endfor
% if depth > SQUARE and depth != pixel:
            clear(to + DEPTH - c, PIXEL - DEPTH);
% endif
% if i < SQUARE - 1:
            ++x;
            to += x < WIDTH ? PIXEL : (PACKED_W - WIDTH + 1) * PIXEL;
            x = x < WIDTH ? x : 0;
% endif
% endfor
        }
    }
% else:
    for (int f = max(first - PAD_H, 0) * WIDTH; f < end; ++f) {
        __global ushort *to = packed + ((f / WIDTH + PAD_H) * PACKED_W + f % WIDTH + PAD_W) * PIXEL;
        for (int c = 0; c < PIXEL; ++c) {
            to[c] = c < DEPTH ? from[c * (HEIGHT * WIDTH) + f] : 0;
        }
    }
% endif
% endif
}
