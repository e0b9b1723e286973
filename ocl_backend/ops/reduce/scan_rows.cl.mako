<%doc>
Inclusive scans of dense rows [rows, size] by work-groups, which share tiles of GROUP * SHARE items.

dtype      DType of x
out        DType of the results
value      type that is computed with
combine    of a, and b behind it
neutral    what changes nothing before an item
better     "" or the comparison by which a later item b is taken: then places are scanned, too
totals     whether each tile's total is written and nothing else
carry      whether a group begins with what `carried` has of the tiles before it
group      work-items of a group
share      items of a work-item: they lie in its registers

Several rows of `padded` places each share a group, or `tiles` groups share a row; `carried` is the
scan of their totals.
</%doc>
<%
    block = group * share
    places = bool(better)
%>\
${out.prelude if out.prelude == dtype.prelude else dtype.prelude + out.prelude}
#define SHARE ${share}
#define BLOCK ${block}

% if not places:
${value} combine(const ${value} a, const ${value} b)
{
    return ${combine};
}
% endif
% if places:
#define TAKES(a, b) ((b) != (b) || ((a) == (a) && (b) ${better} (a)))
% endif

<%def name="join(a, a_place, b, b_place)">\
% if better:
if (!TAKES(${a}, ${b})) { ${b} = ${a}; ${b_place} = ${a_place}; }
% else:
${b} = combine(${a}, ${b});
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void scan_rows(
    const __global ${dtype.storage} *restrict x, const long x_start,
    __global ${value if totals else out.storage} *restrict results, const long results_start,
% if places:
    __global long *restrict where, const long where_start,
% endif
% if carry:
    const __global ${value} *restrict carried, const long carried_start,
% endif
% if carry and places:
    const __global long *restrict carried_where, const long carried_where_start,
% endif
    const long rows, const long size, const int padded, const long tiles)
{
    __local ${value} shared[BLOCK];
    __local ${value} ends[${group}];
% if places:
    __local long end_places[${group}];
% endif
    const int id = (int)get_local_id(0);
    const long first_row = (long)get_group_id(0) / tiles * (BLOCK / padded);
    const long tile = (long)get_group_id(0) % tiles, begin = tile * BLOCK;
    const int items = (int)min(size - begin, (long)padded);
    x += x_start;
    results += results_start;
    for (int t = id; t < BLOCK; t += ${group}) {
        const long row = first_row + t / padded;
        if (row < rows && t % padded < items)
            shared[t] = ${out.convert(dtype, dtype.load("x", "row * size + begin + t % padded")) if not places else dtype.load("x", "row * size + begin + t % padded")};
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int column = id * SHARE % padded;
    const int count = first_row + id * SHARE / padded < rows ? clamp(items - column, 0, SHARE) : 0;
    ${value} mine[SHARE];
% if places:
    long here[SHARE];
% endif
    ${value} end = ${neutral};
% if places:
    long end_place = 0;
% endif
    #pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        if (i < count) {
            mine[i] = shared[id * SHARE + i];
% if places:
            here[i] = begin + column + i;
            if (i) { ${join("mine[i - 1]", "here[i - 1]", "mine[i]", "here[i]")} }
            end_place = here[i];
% else:
            if (i) { ${join("mine[i - 1]", "", "mine[i]", "")} }
% endif
            end = mine[i];
        }
    }
    ends[id] = end;
% if places:
    end_places[id] = end_place;
% endif
    barrier(CLK_LOCAL_MEM_FENCE);
    /* of the work-items of a row, each doubling reaches twice as far back (Hillis and Steele 1986) */
    const int lane = column / SHARE;
    for (int reach = 1; reach < padded / SHARE; reach *= 2) {
        ${value} before = ${neutral};
% if places:
        long before_place = 0;
% endif
        if (lane >= reach) {
            before = ends[id - reach];
% if places:
            before_place = end_places[id - reach];
% endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane >= reach && count > 0) {
            ${join("before", "before_place", "end", "end_place")}
            ends[id] = end;
% if places:
            end_places[id] = end_place;
% endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
% if totals:
    /* the last work-item that has items */
    if (count > 0 && column + count == items) {
        results[first_row * tiles + tile] = end;
% if places:
        where[where_start + first_row * tiles + tile] = end_place;
% endif
    }
% else:
    ${value} before = ${neutral};
% if places:
    long before_place = 0;
% endif
    bool follows = false;
% if carry:
    if (tile > 0) {
        follows = true;
        before = carried[carried_start + first_row * tiles + tile - 1];
% if places:
        before_place = carried_where[carried_where_start + first_row * tiles + tile - 1];
% endif
    }
% endif
    if (lane > 0) {
        ${value} near = ends[id - 1];
% if places:
        long near_place = end_places[id - 1];
% endif
        if (follows) { ${join("before", "before_place", "near", "near_place")} }
        follows = true;
        before = near;
% if places:
        before_place = near_place;
% endif
    }
    #pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        if (i < count) {
            if (follows) { ${join("before", "before_place", "mine[i]", "here[i]")} }
            shared[id * SHARE + i] = mine[i];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = id; t < BLOCK; t += ${group}) {
        const long row = first_row + t / padded, at = row * size + begin + t % padded;
        if (row < rows && t % padded < items) {
            ${out.store("results", "at", "shared[t]")}
        }
    }
% if places:
    const long row = first_row + id * SHARE / padded;
    #pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        if (i < count)
            where[where_start + row * size + begin + column + i] = here[i];
    }
% endif
% endif
}
