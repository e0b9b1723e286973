<%doc>
Repacks one operand of a GEMM as panels [batch][panels][k][width] of fp32; or of `pairs`, for
`gemm_pairs`, [batch][panels][k / 2][width][2] of bf16, the words whose halves its instruction
multiplies and adds. Past the end of k are zeros; past that of x is what can be read as fast as the
rest, and meets no result: rows once more, or what follows a row in memory.

For CPUs, where local memory is ordinary memory: a work-item fills `steps` steps of k of one panel,
and turns an operand along k in registers, some of its rows on and on, as caches ask for what follows
of few rows at a time. The dimension that is not reduced is called x here: m
for A, n for B.

name                kernel name
preamble            storage type of the source, unless `pairs`
width               elements of x per panel
steps               steps of k per work-item, an even number
along_k             neighbours in memory are steps of k (a transposition), else they are x
pairs               words are pairs of steps of k, 16 bits each
</%doc>
<%!
    from oclgen.families.gemm.gemm_pairs_text import load
    from oclgen.families.parts.expressions import chunks, lane, store, vector_of
    from oclgen.families.parts.squares import SQUARE

    BLOCK = 4  # words of a row that are turned in registers at a time, where not a square is
    ROWS = 8  # at a time: they fit into the ways of a cache where rows are a power of two apart
%>\
<%namespace name="squares" file="squares.cl.mako"/>\
<%
    elem, word = ("ushort", "uint") if pairs else ("elem_t", "float")
    whole, step = ("p + 2 <= last", "p += 2") if pairs else ("p < last", "++p")
    turned = SQUARE if pairs and width % SQUARE == 0 else BLOCK
    span = 2 * turned if pairs else turned
%>\
${preamble}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(
    __global const ${elem} *restrict source, const long offset, const int ld, const long batch,
    __global ${"ushort" if pairs else word} *restrict packed, const long packed_offset, const int panel,
    const long packed_batch,
    const int extent, const int k)
{
    const int first = (int)get_global_id(0) * ${steps};
    const int last = min(first + ${steps}, k);
    const int x0 = (int)get_global_id(1) * ${width};
    __global const ${elem} *from = source + offset + (long)get_global_id(2) * batch;
    __global ${word} *to = ${"(__global uint *)(" if pairs else ""}packed + packed_offset + (long)get_global_id(2) * packed_batch
        + (long)get_global_id(1) * panel + (long)first * ${width}${")" if pairs else ""};
    int p = first;
% if along_k:
    // rows past the last one are that one
    const int most = extent - 1 - x0;
    from += (long)x0 * ld;
    const int whole = first + (last - first) / ${span} * ${span};
% if turned == SQUARE:
    for (int x = 0; x < ${width}; x += ${SQUARE}) {
        __global uint *into = to + x;
        for (p = first; p < whole; p += ${span}, into += ${turned * width}) {
            __global const ushort *row = from + min(x, most) * (long)ld + p;
% for i in range(SQUARE):
            uint16 row${i} = (uint16)(as_uint8(vload16(0, row)), as_uint8(vload16(1, row)));
            row += x + ${i} < most ? ld : 0;
% endfor
${squares.turn("uint", "            ")}\
% for i in range(SQUARE):
            vstore16(row${i}, 0, into + ${i * width});
% endfor
        }
    }
% else:
% for x, w in chunks(width, ROWS):
    for (p = first; p < whole; p += ${span}) {
        __global ${word} *into = to + (p - first)${" / 2" if pairs else ""} * ${width} + ${x};
% for i in range(w):
<% row = f"from + min({x + i}, most) * (long)ld + p" %>\
        const ${word}${BLOCK} row${i} = ${f"as_uint{BLOCK}(vload{2 * BLOCK}(0, {row}))" if pairs else f"LOAD{BLOCK}({row})"};
% endfor
% for s in range(BLOCK):
        ${store(w, vector_of((lane(f"row{i}", BLOCK, s) for i in range(w)), word), f"into + {s * width}")};
% endfor
    }
% endfor
% endif
    to += (whole - first)${" / 2" if pairs else ""} * ${width};
    p = whole;
    from -= (long)x0 * ld;
% else:
    // rows whose vectors end before the operand does
    const int past = max(x0 + ${width} - extent, 0), reads = min(last, k - (past + ld - 1) / max(ld, 1));
    for (; ${whole.replace("last", "reads")}; ${step}, to += ${width}) {
% if pairs:
        __global const ushort *low = from + (long)p * ld + x0, *high = low + ld;
% else:
        __global const elem_t *row = from + (long)p * ld + x0;
% endif
% for x, w in chunks(width):
<% value = f"{load(w, f'low + {x}')} | {load(w, f'high + {x}')} << 16" if pairs else f"LOAD{w}(row + {x})" %>\
        ${store(w, value, f"to + {x}")};
% endfor
    }
% endif
    for (; p < last; ${step}, to += ${width}) {
        for (int x = 0; x < ${width}; ++x) {
            const long at = ${"(long)(x0 + x) * ld + p" if along_k else "(long)p * ld + x0 + x"};
% if pairs:
            const bool inside = x0 + x < extent;
            const uint low = inside ? from[at] : 0;
            const uint high = inside && p + 1 < k ? from[at + ${"1" if along_k else "ld"}] : 0;
            to[x] = low | high << 16;
% else:
            to[x] = x0 + x < extent ? LOAD1(from + at) : 0.0f;
% endif
        }
    }
}
