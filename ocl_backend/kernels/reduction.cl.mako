<%doc>
Reduces some dimensions of a tensor: each output combines the mapped items of its span.

name      the kernel's name (_kernel follows it: OpenCL has its own `any`)
prelude   what the dtypes need
source    DType of the input; x is one of its items as a T
other     DType of a second input that lies in memory as the first does, or None; y is its item
center    DType of a second input with the output's shape, or None
target    DType of the output
value     T, the C type combined in; X, of x, y and center, may be another
map       T of x, y, center and position (row-major over the reduced dimensions)
combine   T of a and b
initial   T: the neutral element
finish    T of acc and count
kept      number of dimensions that stay and are taken apart for each output
reduced   number of dimensions that go: the innermost one has `items`, all others are `rows`
columns   vectors run along the innermost dimension that stays (dense), not along the items
width     items per vector
shared    several work-items, `lanes`, share an output, or a vector of columns: `across` of them lie
          along the items, each `apart` from the next in the work-group where there are columns. All
          are powers of two, whose exponents are arguments: few texts serve all sizes
unroll    iterations whose loads are in flight together
group     the most work-items of a group where there are lanes
index     type of sizes and strides
typed     (expression, width) -> the expression with T replaced by a type of that width
load      (dtype, name, at, width) -> that many dense items as T (one repeated for center)
stored    (expression, width) -> statements that write it to target_at

A span is cut into pieces, one per get_global_id(1). Piece s writes s * target_piece further on,
and a second launch over the pieces completes the reduction.
</%doc>\
<%def name="take_apart(pad, number, kind, count, operands)">
${pad}INDEX rest_${number} = ${number};
% for d in range(count - 1, 0, -1):
${pad}const INDEX ${kind}_${d} = rest_${number} % ${kind}_size_${d};
${pad}rest_${number} /= ${kind}_size_${d};
% endfor
% for operand, start in operands:
${pad}const INDEX ${operand}_${kind} = ${start} + rest_${number} * ${operand}_${kind}_0\
% for d in range(1, count):
 + ${kind}_${d} * ${operand}_${kind}_${d}\
% endfor
;
% endfor
</%def>\
<%def name="span(pad, width, dense)">
## combines one piece of one output, or of `width` neighbouring ones, into acc
${pad}${typed("T", width)} acc = (${typed("T", width)})(${initial});
% if center:
${pad}const ${typed("X", width)} center = ${load(center, "center_data", "center_at", width, columns)};
% endif
${pad}for (INDEX row = first_row${" + (lane >> across_bits)" if shared else ""}; row < last_row; row += ${rows_apart}) {
${take_apart(pad + "    ", "row", "reduced", reduced, [("source", "source_at")])}\
${pad}    INDEX i = first_item + ${first_of(dense)};
% if unroll > 1:
${pad}    const INDEX whole = last_item${f" - (last_item - first_item) % {dense}" if dense > 1 else ""};
${pad}    const INDEX apart = ${items_apart(dense)};
${pad}    while (whole - i > ${unroll - 1} * apart) {
${pad}        #pragma unroll
${pad}        for (int k = 0; k < ${unroll}; ++k, i += apart) {
${item(pad + "            ", width, "acc")}\
${pad}        }
${pad}    }
${pad}    // beyond the end the last item is read again: a load under a condition would wait for it
${pad}    if (i < whole) {
${pad}        #pragma unroll
${pad}        for (int k = 0; k < ${unroll}; ++k) {
${pad}            const INDEX inside = min(i + k * apart, whole - ${dense});
${item(pad + "            ", width, "next", "inside", "acc")}\
${pad}            acc = i + k * apart < whole ? next : acc;
${pad}        }
${pad}    }
% if dense > 1:
${pad}    for (i = whole + ${first_of(1)}; i < last_item; i += ${items_apart(1)}) {
${item(pad + "        ", 1, "tail")}\
${pad}    }
% endif
% else:
${pad}    for (; i + ${dense} <= last_item; i += ${items_apart(dense)}) {
${item(pad + "        ", width, "acc")}\
${pad}    }
% if dense > 1:
${pad}    for (; i < last_item; ++i) {
${item(pad + "        ", 1, "tail")}\
${pad}    }
% endif
% endif
${pad}}
</%def>\
<%def name="item(pad, width, acc, i='i', before='')">
## combines item i, or the vector that begins there, with `before` into a new `acc`; or with acc
<% at = f"source_reduced + {i} * source_item" if width == 1 or columns else f"source_reduced + {i}" %>\
% if "position" in map:
${pad}const long position = (long)row * items + ${i};
% endif
${pad}const ${typed("X", width)} x = ${load(source, "source_data", at, width, True)};
% if other:
${pad}const ${typed("X", width)} y = ${load(other, "other_data", at, width, True)};
% endif
${pad}${f"const {typed('T', width)} " if before else ""}${acc} = combine_${width}(${before or acc}, ${typed(map, width).replace("center", "center.s0" if acc == "tail" else "center")});
</%def>\
<%
    # what a work-item has of an output in the end
    together = width if columns else 1
    if not shared:
        first, lane = "get_global_id(0)", "0"
    elif columns:
        first = "((get_group_id(0) << apart_bits) + (get_local_id(0) & ((1 << apart_bits) - 1)))"
        lane = "get_local_id(0) >> apart_bits"
    else:
        first, lane = "(get_global_id(0) >> lane_bits)", "get_local_id(0) & ((1 << lane_bits) - 1)"
    # lanes wait for each other: those beyond the outputs do the last one's work, and keep nothing
    inside = "min(number, outputs - 1)" if shared else "number"
    rows_apart = "(1 << (lane_bits - across_bits))" if shared else "1"
    def first_of(dense):
        return f"(lane & ((1 << across_bits) - 1)) * {dense}" if shared else "0"
    def items_apart(dense):
        return f"({dense} << across_bits)" if shared else str(dense)
%>\
${prelude}
typedef ${index} INDEX;

% for w in ([1, width] if columns and width > 1 else [w for w in (1, 2, 4, 8, 16) if w <= width]):
${typed("T", w)} combine_${w}(const ${typed("T", w)} a, const ${typed("T", w)} b)
{
    return ${typed(combine, w)};
}

% endfor
__kernel void reduce_${name}(
    const __global ${source.storage} *source_data, const long source_start,
% if other:
    const __global ${other.storage} *other_data, const long other_start,
% endif
% if center:
    const __global ${center.storage} *center_data, const long center_start,
% endif
    __global ${target.storage} *target_data, const long target_start,
    const ${value} count, const INDEX outputs, const INDEX outputs_per_item,
    const INDEX rows, const INDEX row_span, const INDEX items, const INDEX item_span,
    const INDEX item_spans, const INDEX source_item, const INDEX target_piece,
% if shared:
    const INDEX lane_bits, const INDEX across_bits, const INDEX apart_bits,
% endif
% if columns:
    const INDEX columns,
% endif
% for d in range(1, kept):
    const INDEX kept_size_${d},
% endfor
% for d in range(kept):
    const INDEX source_kept_${d}, const INDEX target_kept_${d},${" const INDEX center_kept_%d," % d if center else ""}
% endfor
% for d in range(1, reduced):
    const INDEX reduced_size_${d},
% endfor
% for d in range(reduced):
    const INDEX source_reduced_${d}${"," if d + 1 < reduced else ""}
% endfor
)
{
    source_data += source_start;
% if other:
    other_data += other_start;
% endif
    target_data += target_start;
% if center:
    center_data += center_start;
% endif
    const INDEX piece = get_global_id(1);
    const INDEX first_row = piece / item_spans * row_span;
    const INDEX last_row = min(first_row + row_span, rows);
    const INDEX first_item = piece % item_spans * item_span;
    const INDEX last_item = min(first_item + item_span, items);
    const INDEX lane = ${lane};
% if shared:
    __local ${typed("T", together)} partial[${group}];
% endif
    for (INDEX n = 0; n < outputs_per_item; ++n) {
        const INDEX number = ${first} * outputs_per_item + n;
% if not shared:
        if (number >= outputs)
            break;
% endif
% if columns:
        const INDEX blocks = (columns + ${width - 1}) / ${width};
        const INDEX column = ${inside} % blocks * ${width};
        const INDEX output = ${inside} / blocks;
% else:
        const INDEX column = 0;
        const INDEX output = min(number, outputs - 1);
% endif
${take_apart("        ", "output", "kept", kept, [(name, "0") for name in (["source", "target", "center"] if center else ["source", "target"])])}\
        INDEX source_at = source_kept + column;
        INDEX target_at = target_kept + column + piece * target_piece;
% if center:
        INDEX center_at = center_kept + column;
% endif
% if columns and width > 1 and not shared:
        if (column + ${width} <= columns) {
${span("            ", width, 1)}\
% for line in stored(finish, width):
            ${line}
% endfor
            continue;
        }
        for (INDEX c = column; c < columns; ++c, ++source_at, ++target_at${", ++center_at" if center else ""}) {
${span("            ", 1, 1)}\
% for line in stored(finish, 1):
            ${line}
% endfor
        }
% else:
% if width > together:
        ${value} tail = ${initial};
% endif
${span("        ", width, width // together)}\
% if width > together:
<% w = width // 2 %>\
% while w > 0:
        const ${typed("T", w)} acc_${w} = combine_${w}(${"acc" if w == width // 2 else "acc_%d" % (2 * w)}.lo, ${"acc" if w == width // 2 else "acc_%d" % (2 * w)}.hi);
<% w //= 2 %>\
% endwhile
        ${value} total = combine_1(acc_1, tail);
% else:
        ${typed("T", together)} total = acc;
% endif
% if shared:
        partial[get_local_id(0)] = total;
        // four at a time: half as many barriers as by pairs
        for (int reach = 1 << lane_bits; reach > 1;) {
            const int next = max(reach >> 2, 1);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < next) {
                for (int other = next; other < reach; other += next)
                    total = combine_${together}(total, partial[get_local_id(0) + ${"(other << apart_bits)" if columns else "other"}]);
                partial[get_local_id(0)] = total;
            }
            reach = next;
        }
        if (lane > 0 || number >= outputs)
            continue;
% endif
% for line in stored(finish.replace("acc", "total"), together):
        ${line}
% endfor
% endif
    }
}
