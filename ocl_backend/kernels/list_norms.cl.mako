<%doc>
Norms of several tensors. `list_norm` adds up powers: a work-group takes a block of one tensor and
writes one sum. `list_root` is for the sums of each tensor, by one work-group; it writes the norm.

order     1 or 2
stored, result   DType of the tensors, and of the norms
count     tensors that the text has arguments for. Those behind the last one have no work-groups
block, local_items, width   as for tensor_lists
lanes     work-items that add up the sums of one tensor
choice    lines that find a group's tensor by `end_N`, the work-groups up to the end of tensor N
ends      lines that find the sums of tensor `group`
</%doc>\
<%
    from ocl_backend.kernels import vectors
    real, kind = stored.value, vectors.vector(stored.value, width)
    power = lambda x: f"fabs({x})" if order == 1 else f"{x} * {x}"
%>\
<%def name="add_up(items)">\
% if items > 1:
    __local ${real} sums[${items}];
    sums[lane] = sum;
    for (int half_way = ${items // 2}; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_way)
            sums[lane] += sums[lane + half_way];
    }
    sum = sums[0];
% endif
</%def>\
${vectors.prelude(stored, width)}
${result.prelude if result.storage != stored.storage else ""}
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void list_norm(
    __global ${real} *sums_data, const long sums_start,
% for t in range(count):
    const __global ${stored.storage} *x_data_${t}, const long x_start_${t},
% endfor
${",\n".join(f"    const int end_{t}, const long size_{t}" for t in range(count))})
{
    const int group = get_group_id(0), lane = get_local_id(0);
    long first, size;
    const __global ${stored.storage} *x;
% for line in choice:
    ${line}
% endfor
    const long end = min(first + ${block}, size);
    ${kind} total = 0;
    ${real} sum = 0;
    for (long i = first + lane * ${width}; i < end; i += ${local_items * width}) {
        if (i + ${width} <= end) {
            const ${kind} item = ${vectors.load(stored, "x", "i", "1", width)};
            total += ${power("item")};
            continue;
        }
        for (; i < end; ++i) {
            const ${real} item = ${vectors.load(stored, "x", "i", "1", 1)};
            sum += ${power("item")};
        }
    }
    sum += ${" + ".join(f"total.s{k:x}" for k in range(width))};
${add_up(local_items)}\
    if (lane == 0)
        sums_data[sums_start + group] = sum;
}

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void list_root(
    __global ${result.storage} *out_data, const long out_start,
    const __global ${real} *sums_data, const long sums_start,
${",\n".join(f"    const int end_{t}" for t in range(count))})
{
    const int tensor = get_group_id(0), lane = get_local_id(0);
    int begin = 0, end = end_0;
% for t in range(1, count):
    if (tensor == ${t}) {
        begin = end_${t - 1};
        end = end_${t};
    }
% endfor
    ${real} sum = 0;
    for (int i = begin + lane; i < end; i += ${lanes})
        sum += sums_data[sums_start + i];
${add_up(lanes)}\
    if (lane == 0) {
        const ${real} norm = ${"sum" if order == 1 else "sqrt(sum)"};
        ${result.store("(out_data + out_start)", "tensor", f"({result.value})norm")}
    }
}
