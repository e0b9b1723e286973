<%doc>
Repacks one operand of a GEMM as fp32 panels [batch][panels][k][width], zero-padded.

For CPUs, where local memory is ordinary memory: a work-item fills `steps` rows of one panel, and
turns an operand along k in registers. The dimension that is not reduced is called x here:
m for A, n for B.

name                kernel name
dtype               storage type of the source, in the preamble
width               elements of x per panel
steps               steps of k per work-item
along_k             neighbours in memory are steps of k (a transposition), else they are x
</%doc>
<%!
    from oclgen.families.parts.expressions import chunks, lane, store, vector_of

    BLOCK = 4  # steps that are transposed in registers at a time
%>\
${preamble}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(
    __global const elem_t *restrict source, const long offset, const int ld, const long batch,
    __global float *restrict packed, const long packed_offset, const int panel,
    const long packed_batch,
    const int extent, const int k)
{
    const int first = (int)get_global_id(0) * ${steps};
    const int last = min(first + ${steps}, k);
    const int x0 = (int)get_global_id(1) * ${width};
    __global const elem_t *from = source + offset + (long)get_global_id(2) * batch;
    __global float *to = packed + packed_offset + (long)get_global_id(2) * packed_batch
        + (long)get_global_id(1) * panel + (long)first * ${width};
    int p = first;
    if (x0 + ${width} <= extent) {
% if along_k:
        from += (long)x0 * ld;
        for (; p + ${BLOCK} <= last; p += ${BLOCK}, to += ${BLOCK * width}) {
% for x in range(width):
            const float${BLOCK} row${x} = LOAD${BLOCK}(from + ${x} * (long)ld + p);
% endfor
% for s in range(BLOCK):
% for x, w in chunks(width):
            ${store(w, vector_of(lane(f"row{x + i}", BLOCK, s) for i in range(w)), f"to + {s * width + x}")};
% endfor
% endfor
        }
        from -= (long)x0 * ld;
% else:
        for (; p < last; ++p, to += ${width}) {
            __global const elem_t *row = from + (long)p * ld + x0;
% for x, w in chunks(width):
            ${store(w, f"LOAD{w}(row + {x})", f"to + {x}")};
% endfor
        }
% endif
    }
    for (; p < last; ++p, to += ${width}) {
        for (int x = 0; x < ${width}; ++x) {
            const long at = ${"(long)(x0 + x) * ld + p" if along_k else "(long)p * ld + x0 + x"};
            to[x] = x0 + x < extent ? LOAD1(from + at) : 0.0f;
        }
    }
}
