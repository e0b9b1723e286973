<%doc>
Walks the items of several tensors in one launch: each work-group takes a block of one tensor.

kernel    ops.elementwise.Kernel: operands are loaded and stored item by item
prelude   what the dtypes need
shared    names of the operands and numbers that are the same for all tensors; each of those
          operands is one item
count     tensors that the text has arguments for. Those behind the last one have no work-groups
block     items per work-group
local_items, width   work-items of a group, and the items that each handles at once
block_of  width -> statements for that many items, from `inner` on
choice    lines that find a group's tensor by `end_N`, the work-groups up to the end of tensor N
</%doc>\
${prelude}
typedef long INDEX;
${kernel.helpers}

__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void ${kernel.name}_list(
% for t in [""] + [f"_{t}" for t in range(count)]:
% for p in kernel.parameters:
% if (p.name in shared) == (t == ""):
% if p in kernel.scalars:
    const ${p.argument.type} ${p.name}_given${t},
% else:
    __global ${"const " if kernel.is_read_only(p) else ""}${p.type.storage} *${p.name}_data${t}, const long ${p.name}_start${t},
% endif
% endif
% endfor
% endfor
${",\n".join(f"    const int end_{t}, const long size_{t}" for t in range(count))})
{
    const int group = get_group_id(0);
    long first, size;
% for p in kernel.parameters:
% if p.name in shared:
% if p not in kernel.scalars:
    ${p.name}_data += ${p.name}_start;
% endif
% elif p in kernel.scalars:
    ${p.argument.type} ${p.name}_given;
% else:
    __global ${"const " if kernel.is_read_only(p) else ""}${p.type.storage} *${p.name}_data;
% endif
% endfor
% for line in choice:
    ${line}
% endfor
% for p in kernel.operands:
    const INDEX ${p.name}_row = 0;
% endfor
    const long end = min(first + ${block}, size);
    for (long inner = first + (int)get_local_id(0) * ${width}; inner < end; inner += ${local_items * width}) {
% if width > 1:
        if (inner + ${width} <= end) {
% for line in block_of(width):
            ${line}
% endfor
            continue;
        }
        for (; inner < end; ++inner) {
% for line in block_of(1):
            ${line}
% endfor
        }
% else:
% for line in block_of(1):
        ${line}
% endfor
% endif
    }
}
