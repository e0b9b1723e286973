<%doc>
Systems that small triangles solve, in place: a work-group has some columns of one matrix's right sides.
Its work-items meet after each step; a processor's only one needs not.

real     C's type of an item
lanes    work-items of a group
down     those along the rows
swaps    "before" or "after", where rows are exchanged as pivots say; or ""
steps    of each triangle: whether it is the upper one, has a diagonal of ones, is read across
</%doc>\
<% across = lanes // down %>\
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if lanes == 1:
#define MEET
% else:
#define MEET barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
% endif
#define X(i, j) x[(i) * x_down + (j) * x_across]

<%def name="exchange(order)">\
for (int j = first + lane; j < last; j += ${lanes})
        for (${order}) {
            const int other = clamp(pivots[i] - 1, 0, n - 1);  // they are the caller's
            const ${real} kept = X(i, j);
            X(i, j) = X(other, j);
            X(other, j) = kept;
        }
    MEET\
</%def>\
__attribute__((reqd_work_group_size(${lanes}, 1, 1)))
__kernel void solve(
    const __global ${real} *t, const long t_start, const __global int *pivots, const long pivots_start,
    __global ${real} *x, const long x_start, const int n, const int columns, const int share,
    const long t_batch, const long t_down, const long t_across,
    const long x_batch, const long x_down, const long x_across)
{
    const int lane = get_local_id(0), row = lane % ${down}, column = lane / ${down};
    const int first = get_group_id(1) * share, last = min(first + share, columns);
    t += t_start + get_group_id(0) * t_batch;
    x += x_start + get_group_id(0) * x_batch;
    pivots += pivots_start + get_group_id(0) * n;
% if swaps == "before":
    ${exchange("int i = 0; i < n; ++i")}
% endif
% for upper, unit, turned in steps:
    for (int ${"c = n - 1; c >= 0; --c" if upper else "c = 0; c < n; ++c"}) {
% if not unit:
        const ${real} diagonal = t[c * (t_down + t_across)];
        for (int j = first + lane; j < last; j += ${lanes})
            X(c, j) /= diagonal;
        MEET
% endif
        const __global ${real} *side = t + c * ${"t_down" if turned else "t_across"};
        for (int j = first + column; j < last; j += ${across}) {
            const ${real} known = X(c, j);
            for (int i = ${"row; i < c" if upper else "c + 1 + row; i < n"}; i += ${down})
                X(i, j) -= side[i * ${"t_across" if turned else "t_down"}] * known;
        }
        MEET
    }
% endfor
% if swaps == "after":
    ${exchange("int i = n - 1; i >= 0; --i")}
% endif
}
