<%doc>
Copies a strided tensor into another, converting each item.

source, target   DType of either side
outer            number of dimensions walked by get_global_id(1); dimension 0 is the inner one
index            type of sizes and strides: int where every element index fits, else long

The inner dimension is walked by get_global_id(0) without any division; the outer index is taken
apart by `size_1`, `size_2`, ...: the last outer dimension varies fastest.
</%doc>\
${source.prelude}${target.prelude if target is not source else ""}\
__kernel void strided_copy(
    const __global ${source.storage} *restrict source, const long source_start,
    __global ${target.storage} *restrict target, const long target_start,
    const ${index} size_0, const ${index} source_stride_0, const ${index} target_stride_0\
% for d in range(1, outer + 1):
,
    const ${index} size_${d}, const ${index} source_stride_${d}, const ${index} target_stride_${d}\
% endfor
)
{
    const ${index} inner = get_global_id(0);
    ${index} from = inner * source_stride_0;
    ${index} to = inner * target_stride_0;
% if outer:
    ${index} rest = get_global_id(1);
% endif
% for d in range(outer, 0, -1):
    from += rest % size_${d} * source_stride_${d};
    to += rest % size_${d} * target_stride_${d};
    rest /= size_${d};
% endfor
    const __global ${source.storage} *read = source + source_start;
    __global ${target.storage} *write = target + target_start;
    const ${source.value} value = ${source.load("read", "from")};
    ${target.store("write", "to", target.convert(source, "value"))}
}
