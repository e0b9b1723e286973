<%doc>
Repacks an operand of a GEMM as rows [batch][rows][k] of 16-bit items along k, whose k is filled up
with zeros to a multiple of 32: as the tile registers of AMX read it.

A work-item packs 16 rows and `steps` steps of k. What lies along its rows turns in registers, 16 rows
x 32 steps at a time as words of two steps, for words turn in fewer instructions than items; the last
rows are moved a second time where 16 does not divide them.

name                kernel name
steps               steps of k per work-item, a multiple of 32
along_k             neighbours in memory are steps of k, else rows
transpose           text of the function transpose(rows), unless along_k
</%doc>
<%!
    from oclgen.families.parts.squares import SQUARE
%>\
% if not along_k:
${transpose}

% endif
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(
    __global const ushort *restrict source, const long offset, const int ld, const long batch,
    __global ushort *restrict packed, const long packed_offset, const int ld_packed,
    const long packed_batch,
    const int extent, const int k)
{
    const int first = (int)get_global_id(0) * ${steps};
    const int x0 = max(min((int)get_global_id(1) * ${SQUARE}, extent - ${SQUARE}), 0);
    const int last = min(first + ${steps}, ld_packed), last_x = min(x0 + ${SQUARE}, extent);
    source += offset + (long)get_global_id(2) * batch;
    packed += packed_offset + (long)get_global_id(2) * packed_batch;
    int p = first;
% if along_k:
    const int whole = first + (min(last, k) - first) / 16 * 16;
    for (int x = x0; x < last_x; ++x) {
        for (p = first; p < whole; p += 16) {
            vstore16(vload16(0, source + x * (long)ld + p), 0, packed + x * (long)ld_packed + p);
        }
    }
    p = max(whole, first);
% else:
    if (x0 + ${SQUARE} <= extent) {
        for (; p < last; p += ${2 * SQUARE}) {
            float16 words[${SQUARE}];
#pragma unroll
            for (int i = 0; i < ${SQUARE}; ++i) {
                __global const ushort *low = source + (p + 2 * i) * (long)ld + x0;
                words[i] = 0.0f;
                if (p + 2 * i + 1 < k) {
                    words[i] = as_float16(convert_uint16(vload16(0, low)) | convert_uint16(vload16(0, low + ld)) << 16);
                } else if (p + 2 * i < k) {
                    words[i] = as_float16(convert_uint16(vload16(0, low)));
                }
            }
            transpose(words);
#pragma unroll
            for (int i = 0; i < ${SQUARE}; ++i) {
                vstore16(as_uint16(words[i]), 0, (__global uint *)(packed + (x0 + i) * (long)ld_packed + p));
            }
        }
    }
% endif
    for (int x = x0; x < last_x; ++x) {
        for (int q = p; q < last; ++q) {
            packed[x * (long)ld_packed + q] = q < k ? source[${"x * (long)ld + q" if along_k else "q * (long)ld + x"}] : 0;
        }
    }
}
