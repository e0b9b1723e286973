<%doc>
Copies a strided tensor into another, converting each item.

source, target   DType of either side
outer            number of dimensions whose index is taken apart
flat             whether all dimensions are among them; else dimension 0 is the inner one
index            type of sizes and strides: int where every element index fits, else long

Flat, work-items follow the target's items in order, and get_global_id(0) is rounded up: neighbours
write to neighbours, however short a dimension is. Else the inner dimension is walked by
get_global_id(0) without any division, and the outer ones, `rows` together, by get_global_id(1);
both are rounded up. The last outer dimension varies fastest.
</%doc>\
${source.prelude}${target.prelude if target is not source else ""}\
__kernel void strided_copy(
    const __global ${source.storage} *restrict source, const long source_start,
    __global ${target.storage} *restrict target, const long target_start,
% if flat:
    const ${index} items\
% else:
    const ${index} rows,
    const ${index} size_0, const ${index} source_stride_0, const ${index} target_stride_0\
% endif
% for d in range(1, outer + 1):
,
    const ${index} size_${d}, const ${index} source_stride_${d}, const ${index} target_stride_${d}\
% endfor
)
{
% if flat:
    u${index} rest = get_global_id(0);
    if (rest >= items)
        return;
    ${index} from = 0, to = 0;
% else:
    const ${index} inner = get_global_id(0);
    if (inner >= size_0 || get_global_id(1) >= rows)
        return;
    ${index} from = inner * source_stride_0;
    ${index} to = inner * target_stride_0;
% if outer:
    u${index} rest = get_global_id(1);
% endif
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
    const ${source.value} value = ${source.load("read", "from")};
    ${target.store("write", "to", target.convert(source, "value"))}
}
