<%doc>
Walks all items of one iteration space: loads the inputs, runs a body, stores the outputs.

kernel    ops.elementwise.Kernel: name (_kernel follows it: OpenCL has its own `exp`), operands,
          scalars, body, helpers
prelude   what the dtypes need
outer     number of collapsed dimensions besides the innermost
inner     per operand its stride along the innermost: 0, 1 or s (an argument)
width     items per vector
steps     vectors each work-item handles, a work-group's width apart; 0: the whole dimension
alone     whether a work-group is one work-item
index     type of sizes and strides: int where every item index fits, else long
block     width, ahead -> statements for that many items, which `ahead` are loaded already
ahead     None, or what loads all vectors of a work-item before it computes with the first: tests of
          alignment, declarations, and the statements of a step
accessors macros for operands that the body addresses itself

Dimension 0 is the innermost one and is walked without a division; a row, which is all other
dimensions together, is taken apart by size_2, size_3, ...: the last of these varies fastest.
</%doc>\
<%def name="walk(rows)">
% if not steps:
${rows}for (INDEX inner = 0; inner < size_0; ++inner) {
% for line in block(1):
${rows}    ${line}
% endfor
${rows}}
% elif width == 1:
${rows}for (int step = 0; step < ${steps}; ++step) {
${rows}    const INDEX inner = start + step * (INDEX)get_local_size(0);
${rows}    if (inner >= size_0)
${rows}        break;
% for line in block(1):
${rows}    ${line}
% endfor
${rows}}
% else:
% if ahead:
<% tests, arrays, loads = ahead %>\
${rows}const INDEX step_apart = (INDEX)get_local_size(0) * ${width};
${rows}if (start + ${steps - 1} * step_apart + ${width} <= size_0
${rows}    && ${" && ".join(tests)}) {
% for line in arrays:
${rows}    ${line}
% endfor
${rows}    #pragma unroll
${rows}    for (int step = 0; step < ${steps}; ++step) {
${rows}        const INDEX inner = start + step * step_apart;
% for line in loads:
${rows}        ${line}
% endfor
${rows}    }
${rows}    #pragma unroll
${rows}    for (int step = 0; step < ${steps}; ++step) {
${rows}        const INDEX inner = start + step * step_apart;
% for line in block(width, True):
${rows}        ${line}
% endfor
${rows}    }
${rows}} else
% endif
${rows}for (int step = 0; step < ${steps}; ++step) {
${rows}    INDEX inner = start + step * (INDEX)get_local_size(0) * ${width};
${rows}    if (inner + ${width} <= size_0) {
% for line in block(width):
${rows}        ${line}
% endfor
${rows}        continue;
${rows}    }
${rows}    for (; inner < size_0; ++inner) {
% for line in block(1):
${rows}        ${line}
% endfor
${rows}    }
${rows}    break;
${rows}}
% endif
</%def>\
${prelude}
typedef ${index} INDEX;

% for line in accessors:
${line}
% endfor

${kernel.helpers}

% if alone:
__attribute__((reqd_work_group_size(1, 1, 1)))
% endif
__kernel void ${kernel.name}_kernel(
% for p in kernel.parameters:
% if p in kernel.scalars:
    const ${p.argument.type} ${p.name}_given,
% elif p.role != "position":
    __global ${"const " if kernel.is_read_only(p) else ""}${p.type.storage} *${p.name}_data, const long ${p.name}_start,
% endif
% endfor
    const INDEX size_0\
% if outer:
,
    const INDEX rows, const INDEX rows_per_item\
% for d in range(2, outer + 1):
, const INDEX size_${d}\
% endfor
% endif
% for operand in kernel.operands:
% for d in range(outer):
,
    const INDEX ${operand.name}_stride_${d + 1}\
% endfor
% if inner[operand.name] == "s":
,
    const INDEX ${operand.name}_stride_0\
% endif
% endfor
)
{
% for operand in kernel.operands:
% if operand.role != "position":
    ${operand.name}_data += ${operand.name}_start;
% endif
% endfor
% if steps:
    const INDEX start = get_group_id(0) * get_local_size(0) * ${width * steps}
        + get_local_id(0) * ${width};
% endif
% if outer == 0:
% for operand in kernel.operands:
    const INDEX ${operand.name}_row = 0;
% endfor
${walk("    ")}
% else:
    const INDEX first_row = get_global_id(1) * rows_per_item;
    const INDEX last_row = min(first_row + rows_per_item, rows);
    for (INDEX row = first_row; row < last_row; ++row) {
        INDEX rest = row;
% for d in range(outer, 0, -1):
% if d > 1:
        const INDEX i_${d} = rest % size_${d};
        rest /= size_${d};
% else:
        const INDEX i_1 = rest;
% endif
% endfor
% for operand in kernel.operands:
        const INDEX ${operand.name}_row = ${" + ".join(f"i_{d} * {operand.name}_stride_{d}" for d in range(1, outer + 1))};
% endfor
${walk("        ")}
    }
% endif
}
