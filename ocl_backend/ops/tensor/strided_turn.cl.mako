<%doc>
Copies a strided tensor into another whose fastest dimension is not the source's, on CPUs: a
work-item turns tiles of vec x vec items in registers. Items have 4 bytes and keep their bits.

vec        lanes of a vector
tiles      tiles along `b` that a work-item turns
outer      number of dimensions walked by get_global_id(2)
index      type of sizes and strides: int where every element index fits, else long
transpose  text of the function transpose(rows)

Dimension `a` is the target's fastest, `b` the source's; items are neighbours along them.
</%doc>\
${transpose}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void strided_turn(
    const __global float *restrict source, const long source_start,
    __global float *restrict target, const long target_start,
    const ${index} size_a, const ${index} source_stride_a, const ${index} target_stride_a,
    const ${index} size_b, const ${index} source_stride_b, const ${index} target_stride_b\
% for d in range(1, outer + 1):
,
    const ${index} size_${d}, const ${index} source_stride_${d}, const ${index} target_stride_${d}\
% endfor
)
{
    const ${index} first_a = (${index})get_global_id(0) * ${vec};
    const ${index} begin_b = (${index})get_global_id(1) * ${vec * tiles};
    const ${index} end_b = min(begin_b + ${vec * tiles}, size_b);
    const int rows = min(size_a - first_a, (${index})${vec});
    ${index} from = first_a * source_stride_a;
    ${index} to = first_a;
% if outer:
    ${index} rest = get_global_id(2);
% endif
% for d in range(outer, 0, -1):
    from += rest % size_${d} * source_stride_${d};
    to += rest % size_${d} * target_stride_${d};
    rest /= size_${d};
% endfor
    for (${index} b = begin_b; b < end_b; b += ${vec}) {
        const __global float *read = source + source_start + from + b;
        __global float *write = target + target_start + to + b * target_stride_b;
        if (rows == ${vec} && b + ${vec} <= end_b) {
            float${vec} tile[${vec}];
            for (int i = 0; i < ${vec}; ++i) {
                tile[i] = vload${vec}(0, read + i * source_stride_a);
            }
            transpose(tile);
            for (int i = 0; i < ${vec}; ++i) {
                vstore${vec}(tile[i], 0, write + i * target_stride_b);
            }
            continue;
        }
        const int columns = min(end_b - b, (${index})${vec});
        for (int j = 0; j < columns; ++j) {
            for (int i = 0; i < rows; ++i) {
                write[j * target_stride_b + i] = read[i * source_stride_a + j];
            }
        }
    }
}
