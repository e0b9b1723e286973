<%doc>
Sums over dense rows, each a map of a row's items; then, perhaps, something for each item.

kernel    Kernel of row_passes.RowPass: operands (inputs and outputs are matrices, addresses what
          `begin` and `finish` address by `row`), scalars, helpers
prelude   what the dtypes need
accessors macros of addresses
begin     statements before the items of a row
sums      maps of the inputs; S is the type of a vector's comparison, `place` the items' numbers in
          that type
finish    statements of one work-item with sum_0, sum_1, ...
each      statements that make the outputs of vectors of items, or ""
width     items per vector
shared    `1 << lane_bits` work-items share a row, else a work-item walks rows_per_item rows
unroll    vectors whose loads are in flight together
group     work-items of a group where there are lanes
kept      number of dimensions of rows
index     type of sizes and strides
typed     (expression, width) -> the expression with T and S replaced
load      (operand, at, width) -> the expression of items
store     (operand, at, width) -> statements
scalars   declarations of the scalars
</%doc>\
<%
    real = kernel.value
    inputs = [o for o in kernel.operands if o.role == "input"]
    outputs = [o for o in kernel.operands if o.role == "output"]
    matrices = inputs + outputs
    lanes = "(1 << lane_bits)" if shared else "1"
%>\
<%def name="items(pad, i, w, names)">
% for o in names:
${pad}const ${typed("T", w)} ${o.name} = ${load(o, f"{o.name}_row + {i}", w)};
% endfor
% if "place" in " ".join([*sums, each]):
${pad}const ${typed("S", w)} place = (${typed("S", w)})(${i})${f" + ({typed('S', w)})({', '.join(map(str, range(w)))})" if w > 1 else ""};
% endif
</%def>\
<%def name="add(pad, i, w, suffix, known='')">
${items(pad, i, w, inputs)}\
% for k, text in enumerate(sums):
${pad}sum_${k}${suffix} = ${known}sum_${k}${suffix} + (${typed(text, w)})${f" : sum_{k}{suffix}" if known else ""};
% endfor
</%def>\
<%def name="write(pad, i, w)">
${items(pad, i, w, inputs)}\
${pad}${typed(each, w)}
% for o in outputs:
% for line in store(o, f"{o.name}_row + {i}", w):
${pad}${line}
% endfor
% endfor
</%def>\
${prelude}
typedef ${index} INDEX;

% for line in accessors:
${line}
% endfor

${kernel.helpers}

% if shared:
__attribute__((reqd_work_group_size(${group}, 1, 1)))
% endif
__kernel void ${kernel.name}_rows(
% for p in kernel.parameters:
% if p in kernel.scalars:
    const ${p.argument.type} ${p.name}_given,
% else:
    ${"" if p.role == "address" and not kernel.is_read_only(p) else "const " if p.role != "output" else ""}__global ${p.type.storage} *${"restrict " if p in matrices else ""}${p.name}_data, const long ${p.name}_start,
% endif
% endfor
% if shared:
    const int lane_bits,
% endif
% for d in range(1, kept):
    const INDEX size_${d},
% endfor
% for o in matrices:
% for d in range(kept):
    const INDEX ${o.name}_stride_${d},
% endfor
% endfor
    const INDEX rows, const INDEX rows_per_item, const INDEX items)
{
% for o in kernel.operands:
    ${o.name}_data += ${o.name}_start;
% endfor
% for line in scalars:
    ${line}
% endfor
% if shared:
    __local ${real} partial[${max(len(sums), 1)}][${group}];
    const int id = get_local_id(0), lane = id & (${lanes} - 1);
    const INDEX first = get_global_id(0) >> lane_bits;
% else:
    const int lane = 0;
    const INDEX first = get_global_id(0);
% endif
    for (INDEX n = 0; n < rows_per_item; ++n) {
        const INDEX number = first * rows_per_item + n;
% if shared:
        // lanes wait for each other: those beyond the rows add up the last row, and write nothing
        const bool is_kept = number < rows;
        const INDEX row = min(number, rows - 1);
% else:
        if (number >= rows)
            break;
        const bool is_kept = true;
        const INDEX row = number;
% endif
        INDEX rest = row;
% for d in range(kept - 1, 0, -1):
        const INDEX at_${d} = rest % size_${d};
        rest /= size_${d};
% endfor
% for o in matrices:
        const INDEX ${o.name}_row = rest * ${o.name}_stride_0${"".join(f" + at_{d} * {o.name}_stride_{d}" for d in range(1, kept))};
% endfor
        ${begin}
% for k in range(len(sums)):
        ${typed("T", width)} sum_${k} = 0;
% if width > 1:
        ${real} sum_${k}_rest = 0;
% endif
% endfor
        const INDEX apart = ${width} * ${lanes}, whole = items - items % ${width};
        INDEX i = lane * ${width};
% if sums and unroll > 1:
        while (whole - i > ${unroll - 1} * apart) {
            #pragma unroll
            for (int k = 0; k < ${unroll}; ++k, i += apart) {
${add(" " * 16, "i", width, "")}\
            }
        }
        // beyond the end the last item is read again: a load under a condition would wait for it
        if (i < whole) {
            #pragma unroll
            for (int k = 0; k < ${unroll}; ++k) {
                const INDEX inside = min(i + k * apart, whole - ${width});
                const bool is_new = i + k * apart < whole;
${add(" " * 16, "inside", width, "", "is_new ? ")}\
            }
        }
% elif sums:
        for (; i < whole; i += apart) {
${add(" " * 12, "i", width, "")}\
        }
% endif
% if sums and width > 1:
        for (i = whole + lane; i < items; i += ${lanes}) {
${add(" " * 12, "i", 1, "_rest")}\
        }
% endif
% for k in range(len(sums)):
<%
    lanes_of = [f"sum_{k}.s{i:x}" for i in range(width)] if width > 1 else [f"sum_{k}"]
    while len(lanes_of) > 1:
        lanes_of = [f"({a} + {b})" for a, b in zip(lanes_of[::2], lanes_of[1::2])]
%>\
        ${real} total_${k} = ${lanes_of[0]}${f" + sum_{k}_rest" if width > 1 else ""};
% endfor
% if shared and sums:
% for k in range(len(sums)):
        partial[${k}][id] = total_${k};
% endfor
        // four at a time: half as many barriers as by pairs
        for (int reach = ${lanes}; reach > 1;) {
            const int next = max(reach >> 2, 1);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < next) {
% for k in range(len(sums)):
                for (int other = next; other < reach; other += next)
                    total_${k} += partial[${k}][id + other];
                partial[${k}][id] = total_${k};
% endfor
            }
            reach = next;
        }
% if each:
        barrier(CLK_LOCAL_MEM_FENCE);
% for k in range(len(sums)):
        total_${k} = partial[${k}][id - lane];
% endfor
% endif
% endif
        if (lane == 0 && is_kept) {
            ${finish}
        }
% if each:
        for (i = is_kept ? lane * ${width} : items; i < whole; i += apart) {
${write(" " * 12, "i", width)}\
        }
% if width > 1:
        for (i = is_kept ? whole + lane : items; i < items; i += ${lanes}) {
${write(" " * 12, "i", 1)}\
        }
% endif
% endif
    }
}
