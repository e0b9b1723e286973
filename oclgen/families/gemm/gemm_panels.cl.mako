<%doc>
Packs panels of columns of 16-bit items as pairs along k, [k / 2][width][2], k filled up with zeros to a
multiple of 32: as the tile registers of AMX read columns. Defs for other templates, no text of its own.

Past the last column of the operand a panel holds other items of it: their results are not stored. What
lies along k turns in registers, 16 columns x 32 steps at a time; the last steps are moved a second time
where 32 does not divide k. Rows that lie along columns are asked for `ahead` steps before they are read.

width               columns of a panel, a multiple of 16
along_k             neighbours in memory are steps of k, else columns
ahead               steps of k
space               address space of the panel
</%doc>
<%!
    from oclgen.families.parts.squares import SQUARE
%>\
<%namespace name="squares" file="squares.cl.mako"/>\
<%def name="pack_panel(width, along_k, ahead, space='')">\
% if not along_k:
<%include file="ask_for.cl.mako"/>\
% endif
// packs the steps from first to filled, of which k are the operand's, of the columns from x0 on
void pack_panel(
    __global const ushort *from, const int ld, const int extent, const int k, ${space}uint *to, const int x0,
    const int first, const int filled)
{
    const int last = min(filled, k);
    int p = first;
% if along_k:
    const int even = k / 2 * 2;
    for (; p < min(last, even) && k >= 32; p += 32) {
        const int q = min(p, even - 32);
        for (int x = 0; x < ${width}; x += ${SQUARE}) {
% for i in range(SQUARE):
            __global const ushort *from${i} = from + min(x0 + x + ${i}, extent - 1) * (long)ld + q;
            uint16 row${i} = (uint16)(as_uint8(vload16(0, from${i})), as_uint8(vload16(1, from${i})));
% endfor
${squares.turn("uint", "            ")}\
% for i in range(SQUARE):
            vstore16(row${i}, 0, to + (q / 2 - first / 2 + ${i}) * ${width} + x);
% endfor
        }
    }
    p = min(p, k < 32 ? first : even);
% else:
    // a vector that begins in a row may end in the next one, and has to end in the operand
    for (; p + 2 <= last && (k - 2 - p) * (long)ld + extent >= x0 + ${width}; p += 2) {
        __global const ushort *low = from + p * (long)ld + x0, *high = low + ld;
% for x in range(0, width, 2 * SQUARE):
        ASK_FOR(low + ${ahead} * (long)ld + ${x}, 3);
        ASK_FOR(high + ${ahead} * (long)ld + ${x}, 3);
% endfor
% for x in range(0, width, SQUARE):
        vstore16(convert_uint16(vload16(0, low + ${x})) | convert_uint16(vload16(0, high + ${x})) << 16,
                 0, to + (p - first) / 2 * ${width} + ${x});
% endfor
    }
% endif
    for (; p < filled; p += 2) {
        for (int x = 0; x < ${width}; ++x) {
            const long at = ${"(x0 + x) * (long)ld + p" if along_k else "p * (long)ld + x0 + x"};
            const bool inside = x0 + x < extent;
            const uint low = inside && p < k ? from[at] : 0;
            const uint high = inside && p + 1 < k ? from[at + ${"1" if along_k else "ld"}] : 0;
            to[(p - first) / 2 * ${width} + x] = low | high << 16;
        }
    }
}

</%def>
