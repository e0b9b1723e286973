<%doc>
LU (Golub and Van Loan, algorithm 3.4.1) and Cholesky factors of small matrices that lie column by column,
in place. A work-group has a matrix; its work-items meet after each step, a processor's only one needs not.

kind     lu or cholesky
real     C's type of an item
lanes    work-items of a group
down     those along the rows
inside   items of local memory that hold a matrix; 0: it stays where it is
</%doc>\
<%
    across = lanes // down
    searching = min(lanes, 32)
%>\
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if lanes == 1:
#define MEET
% else:
#define MEET barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
% endif
#define A(i, j) a[(j) * rows + (i)]

__attribute__((reqd_work_group_size(${lanes}, 1, 1)))
__kernel void factor(
    __global ${real} *matrices, const long start, __global int *pivots, const long pivots_start,
    __global int *info, const long info_start, const int rows, const int columns)
{
    const int lane = get_local_id(0), row = lane % ${down}, column = lane / ${down};
    const long matrix = get_group_id(0);
    __global ${real} *whole = matrices + start + matrix * rows * columns;
% if inside:
    __local ${real} a[${inside}];
    for (int i = lane; i < rows * columns; i += ${lanes})
        a[i] = whole[i];
    MEET
% else:
    __global ${real} *a = whole;
% endif
    int failed = 0;
% if kind == "lu":
    const int count = min(rows, columns);
    pivots += pivots_start + matrix * count;
% if lanes > 1:
    __local ${real} largest[${searching}];
    __local int places[${searching}];
% endif
    for (int c = 0; c < count; ++c) {
        ${real} most = -1;
        int at = c;
        for (int i = c + lane; i < rows && lane < ${searching}; i += ${searching}) {
            const ${real} size = fabs(A(i, c));
            if (size > most) {
                most = size;
                at = i;
            }
        }
% if lanes > 1:
        if (lane < ${searching}) {
            largest[lane] = most;
            places[lane] = at;
        }
        MEET
        most = -1;
        at = c;
        for (int k = 0; k < ${searching}; ++k)
            if (largest[k] > most || (largest[k] == most && places[k] < at)) {
                most = largest[k];
                at = places[k];
            }
% endif
        const ${real} pivot = A(at, c);
        MEET
        if (lane == 0)
            pivots[c] = at + 1;
        if (pivot == 0 && !failed)
            failed = c + 1;
        for (int j = lane; j < columns && at != c; j += ${lanes}) {
            const ${real} kept = A(c, j);
            A(c, j) = A(at, j);
            A(at, j) = kept;
        }
        MEET
        for (int i = c + 1 + lane; i < rows && pivot != 0; i += ${lanes})
            A(i, c) /= pivot;
        MEET
        for (int j = c + 1 + column; j < columns; j += ${across}) {
            const ${real} known = A(c, j);
            for (int i = c + 1 + row; i < rows; i += ${down})
                A(i, j) -= A(i, c) * known;
        }
        MEET
    }
% else:
    for (int c = 0; c < rows && !failed; ++c) {
        const ${real} square = A(c, c);
        MEET
        if (!(square > 0)) {
            failed = c + 1;
            break;
        }
        const ${real} root = sqrt(square);
        for (int i = c + lane; i < rows; i += ${lanes})
            A(i, c) = i == c ? root : A(i, c) / root;
        MEET
        for (int j = c + 1 + column; j < rows; j += ${across}) {
            const ${real} known = A(j, c);
            for (int i = j + row; i < rows; i += ${down})
                A(i, j) -= A(i, c) * known;
        }
        MEET
    }
    for (int j = column; j < rows; j += ${across})
        for (int i = row; i < j; i += ${down})
            A(i, j) = 0;
% endif
    if (lane == 0)
        info[info_start + matrix] = failed;
% if inside:
    MEET
    for (int i = lane; i < rows * columns; i += ${lanes})
        whole[i] = a[i];
% endif
}
