<%doc>
Repacks one operand of `gemm_pairs` as panels of pairs along k, [batch][panels][k / 2][width][2],
with zeros past the edges: the words whose halves the instruction multiplies and adds.

A work-item fills `steps` steps of k of one panel. The dimension that is not reduced is called x
here: m for A, n for B.

name                kernel name
width               elements of x per panel
steps               steps of k per work-item, an even number
along_k             neighbours in memory are steps of k (a transposition of pairs), else they are x
</%doc>
<%!
    from oclgen.families.gemm.gemm_pairs_text import SQUARE, exchanged, load, picked
    from oclgen.families.parts.expressions import chunks, store

    BLOCK = 4  # pairs of as many rows that are turned in registers where panels are not that wide
%>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(
    __global const ushort *restrict source, const long offset, const int ld, const long batch,
    __global ushort *restrict packed, const long packed_offset, const int panel,
    const long packed_batch,
    const int extent, const int k)
{
    const int first = (int)get_global_id(0) * ${steps};
    const int last = min(first + ${steps}, k);
    const int x0 = (int)get_global_id(1) * ${width};
    __global const ushort *from = source + offset + (long)get_global_id(2) * batch;
    __global uint *to = (__global uint *)(packed + packed_offset + (long)get_global_id(2) * packed_batch
        + (long)get_global_id(1) * panel + (long)first * ${width});
    int p = first;
    if (x0 + ${width} <= extent) {
% if along_k and width % SQUARE == 0:
        from += (long)x0 * ld;
        for (; p + ${2 * SQUARE} <= last; p += ${2 * SQUARE}, to += ${SQUARE * width}) {
            for (int x = 0; x < ${width}; x += ${SQUARE}) {
                __global const ushort *row = from + x * (long)ld + p;
% for i in range(SQUARE):
                uint16 row${i} = (uint16)(as_uint8(vload16(0, row)), as_uint8(vload16(1, row)));
                row += ld;
% endfor
                uint16 low;
% for distance in (8, 4, 2, 1):
% for i in range(SQUARE):
% if not i & distance:
                low = row${i};
<% other = f"row{i + distance}" %>\
                row${i} = (uint16)(${exchanged("low", other, distance, 0)});
                ${other} = (uint16)(${exchanged("low", other, distance, 1)});
% endif
% endfor
% endfor
% for i in range(SQUARE):
                vstore16(row${i}, 0, to + ${i * width} + x);
% endfor
            }
        }
        from -= (long)x0 * ld;
% elif along_k:
        from += (long)x0 * ld;
        for (; p + ${2 * BLOCK} <= last; p += ${2 * BLOCK}, to += ${BLOCK * width}) {
% for x in range(width):
            const uint${BLOCK} row${x} = as_uint${BLOCK}(vload${2 * BLOCK}(0, from + ${x} * (long)ld + p));
% endfor
% for s in range(BLOCK):
% for x, w in chunks(width):
            ${store(w, picked(x, w, s), f"to + {s * width + x}")};
% endfor
% endfor
        }
        from -= (long)x0 * ld;
% else:
        for (; p + 2 <= last; p += 2, to += ${width}) {
            __global const ushort *low = from + (long)p * ld + x0, *high = low + ld;
% for x, w in chunks(width):
<% pair = f"{load(w, f'low + {x}')} | {load(w, f'high + {x}')} << 16" %>\
            ${store(w, pair, f"to + {x}")};
% endfor
        }
% endif
    }
    for (; p < last; p += 2, to += ${width}) {
        for (int x = 0; x < ${width}; ++x) {
            const long at = ${"(long)(x0 + x) * ld + p" if along_k else "(long)p * ld + x0 + x"};
            const bool inside = x0 + x < extent;
            const uint low = inside ? from[at] : 0;
            const uint high = inside && p + 1 < k ? from[at + ${"1" if along_k else "ld"}] : 0;
            to[x] = low | high << 16;
        }
    }
}
