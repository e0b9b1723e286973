<%doc>
Copies a strided tensor into another whose fastest dimension is not the source's, by tiles.

source, target   DType of either side
tile             items along either side of a tile
rows             the work-group is tile x rows: each work-item moves tile / rows items
padding          items behind each row of a tile: work-items that walk a column meet different banks
outer            number of dimensions walked by get_global_id(2)
index            type of sizes and strides: int where every element index fits, else long

Dimension `a` is the target's fastest, `b` the source's. A work-group reads a tile along `b`, puts
it into local memory and writes it along `a`, so that both sides are walked in order.
</%doc>\
${source.prelude}${target.prelude if target is not source else ""}\
__kernel void strided_transpose(
    const __global ${source.storage} *restrict source, const long source_start,
    __global ${target.storage} *restrict target, const long target_start,
    const ${index} size_a, const ${index} source_stride_a, const ${index} target_stride_a,
    const ${index} size_b, const ${index} source_stride_b, const ${index} target_stride_b\
% for d in range(1, outer + 1):
,
    const ${index} size_${d}, const ${index} source_stride_${d}, const ${index} target_stride_${d}\
% endfor
)
{
    __local ${source.value} values[${tile}][${tile + padding}];
    const ${index} lane = get_local_id(0);
    const ${index} row = get_local_id(1);
    const ${index} first_a = (${index})get_group_id(0) * ${tile};
    const ${index} first_b = (${index})get_group_id(1) * ${tile};
    ${index} from = 0;
    ${index} to = 0;
% if outer:
    u${index} rest = get_global_id(2);
% endif
% for d in range(outer, 1, -1):
    from += (${index})(rest % (u${index})size_${d}) * source_stride_${d};
    to += (${index})(rest % (u${index})size_${d}) * target_stride_${d};
    rest /= (u${index})size_${d};
% endfor
% if outer:
    from += (${index})rest * source_stride_1;
    to += (${index})rest * target_stride_1;
% endif
    const __global ${source.storage} *read = source + source_start;
    __global ${target.storage} *write = target + target_start;

    for (int a = row; a < ${tile}; a += ${rows})
        if (first_a + a < size_a && first_b + lane < size_b) {
            const ${index} at = from + (first_a + a) * source_stride_a
                + (first_b + lane) * source_stride_b;
            values[a][lane] = ${source.load("read", "at")};
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int b = row; b < ${tile}; b += ${rows})
        if (first_a + lane < size_a && first_b + b < size_b) {
            const ${index} at = to + (first_a + lane) * target_stride_a
                + (first_b + b) * target_stride_b;
            const ${source.value} value = values[lane][b];
            ${target.store("write", "at", target.convert(source, "value"))}
        }
}
