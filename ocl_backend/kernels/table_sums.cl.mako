<%doc>
Sums of values by row. Each work-item has a table of all rows, to which it alone adds, or shares
one with others that have its column.

room        rows of a table, at least as many as the target has; a power of two
lanes       work-items of a group that have columns of their own
sharers     work-items of a group that share a column's values; lanes * sharers is the group
tables      of a column in a group, a power of two; fewer than `sharers` are added to atomically
lanes_first whether neighbouring work-items have neighbouring columns; else neighbouring values
apart       dimensions of the columns, the last varies fastest: those along which nothing meets
meeting     dimensions of a column's values, the last varies fastest
whole       whether a group has all values of its columns: it adds its sums to the target. Else
            they are written to [slices, rows, columns]
real, index, value, target   OpenCL C's type of a sum, and DTypes
wide        whether positions need 64 bits

Arguments are the pointers, `Places.numbers`, columns, values of a column, and how many of these a
group takes; then sizes (but the first) and strides of index, value and target for each of `apart`,
and sizes (but the first) and strides of index and value for each of `meeting`.
</%doc>
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    group, width = lanes * sharers, lanes * tables
    shared = tables < sharers
    kept = {"float": "uint", "double": "ulong"}.get(real, real) if shared else real
    narrow = kept in ("int", "uint")
    def at(kind, count, name):
        """The sum of positions times strides."""
        return " + ".join(f"{kind}_{d} * {name}_{kind}_{d}" for d in range(count))
%>\
<%def name="taken_apart(kind, count, source, indent)">\
${indent}INDEX ${kind}_rest = ${source};
% for d in reversed(range(count)):
% if d:
${indent}const INDEX ${kind}_${d} = ${kind}_rest % size_${kind}_${d};
${indent}${kind}_rest /= size_${kind}_${d};
% else:
${indent}const INDEX ${kind}_0 = ${kind}_rest;
% endif
% endfor
</%def>\
<%def name="read(k)">\
            int row_${k} = 0;
            ${real} value_${k} = 0;
            if (m + ${k * sharers} < end) {
${taken_apart("m", meeting, f"m + {k * sharers}", " " * 16)}\
                row_${k} = (int)place((long)${index.load("index_data", f"index_at + {at('m', meeting, 'index')}")},
                    size, dim, wraps, operator, faults_data);
                value_${k} = ${vectors.convert(value.value, real, value.load("value_data", f"value_at + {at('m', meeting, 'value')}"), 1)};
            }
</%def>\
% for text in dict.fromkeys((value.prelude, target.prelude)):
${text}
% endfor
typedef ${"long" if wide else "int"} INDEX;
% if shared:
% if not narrow:
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
% endif
void add(volatile __local ${kept} *place, const ${real} term)
{
% if kept == real:
    ${"atomic_add" if narrow else "atom_add"}(place, term);
% else:
    ${kept} seen = *place, before;
    do {
        before = seen;
        seen = ${"atomic_cmpxchg" if narrow else "atom_cmpxchg"}(
            place, before, as_${kept}(as_${real}(before) + term));
    } while (seen != before);
% endif
}
% endif

${helpers}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void table_sums(
    __global ${target.storage if whole else real} *out_data, const long out_start,
    __global const ${index.storage} *index_data, const long index_start,
    __global const ${value.storage} *value_data, const long value_start,
    const long size, const long step, const long dim, const long operator, const long wraps,
    __global long *faults_data, const long faults_start,
    const INDEX columns, const INDEX values, const INDEX share\
% for kind, count, names in (("a", apart, ("index", "value", "target")), ("m", meeting, ("index", "value"))):
% for d in range(count):
% if d:
, const INDEX size_${kind}_${d}\
% endif
% for name in names:
, const INDEX ${name}_${kind}_${d}\
% endfor
% endfor
% endfor
)
{
    __local ${kept} table[${room * width}];
    const int id = get_local_id(0);
    const int lane = ${f"id % {lanes}" if lanes_first else f"id / {sharers}"};
    const int sharer = ${f"id / {lanes}" if lanes_first else f"id % {sharers}"};
    out_data += out_start;
    index_data += index_start;
    value_data += value_start;
    faults_data += faults_start;
    const int own = ${f"id % {width}" if lanes_first else f"lane * {tables} + sharer % {tables}"};
% if shared:
    for (int k = id; k < size * ${width}; k += ${group})
        table[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
% else:
    for (int row = 0; row < size; ++row)
        table[row * ${width} + own] = 0;
% endif
    const INDEX column = get_group_id(0) * ${lanes} + lane;
    const INDEX end = min((INDEX)(get_group_id(1) + 1) * share, values);
    if (column < columns) {
${taken_apart("a", apart, "column", " " * 8)}\
        const INDEX index_at = ${at("a", apart, "index")}, value_at = ${at("a", apart, "value")};
        // four values are under way before the first one is added
        for (INDEX m = get_group_id(1) * share + sharer; m < end; m += ${4 * sharers}) {
% for k in range(4):
${read(k)}\
% endfor
% for k in range(4):
% if shared:
            if (m + ${k * sharers} < end)
                add(&table[row_${k} * ${width} + own], value_${k});
% else:
            table[row_${k} * ${width} + own] += value_${k};
% endif
% endfor
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = id; k < size * ${lanes}; k += ${group}) {
        const int row = k / ${lanes}, first = row * ${width};
        const INDEX column = get_group_id(0) * ${lanes} + k % ${lanes};
        if (column >= columns)
            continue;
        ${real} sum = 0;
        for (int s = 0; s < ${tables}; ++s)
            sum += ${f"as_{real}" if kept != real else ""}(table[first + ${f"s * {lanes} + k % {lanes}" if lanes_first else f"k % {lanes} * {tables} + s"}]);
% if whole:
${taken_apart("a", apart, "column", " " * 8)}\
        const long at = ${at("a", apart, "target")} + row * step;
        sum += ${vectors.convert(target.value, real, target.load("out_data", "at"), 1)};
        ${target.store("out_data", "at", "sum")}
% else:
        out_data[((long)get_group_id(1) * size + row) * columns + column] = sum;
% endif
    }
}
