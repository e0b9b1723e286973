<%doc>
Fourier transforms of rows on a GPU: a work-group has some rows in local memory. A step combines r
transforms of `done` items to one of r times as many (Stockham, in Cochran et al. 1967): it reads one
array, writes the other, and leaves the items in order.

A length with a large prime factor is a convolution with a chirp (Bluestein 1970), of a length that is
a power of 2: two transforms, between which the spectrum is multiplied by the chirp's.

real          C's type of a part
items         of each of the two arrays
most_rows     of a work-group
work_items    of a work-group
source        complex, real, or half of a Hermitian spectrum
target        complex or real
twisted       whether results are multiplied by factors at [twist of the row + place]
chirped       whether the transform is a convolution with `chirp`, whose spectrum is `filtered`
rows_fastest  whether neighbouring work-items read, and write, neighbouring rows
outer         dimensions that number the rows
</%doc>\
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
typedef ${real} real;
typedef ${real}2 pair;
#define TIMES(a, b) (pair)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x)
#define ROOT(t) (pair)(roots[t].x, turned * roots[t].y)

/* transforms `count` rows in `a`, by b; returns the array of the results */
__local pair *transform(
    __local pair *a, __local pair *b, const __global pair *roots, const real turned, const real sign,
    const int count, const int length, ulong radices)
{
    const int id = (int)get_local_id(0);
    for (int done = 1; radices; radices >>= 6) {
        const int r = (int)(radices & 63), apart = length / r, m = apart / done;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (r == 4) {
            for (int t = id; t < count * apart; t += ${work_items}) {
                const int row = t / apart, in_row = t - row * apart, k = in_row / done, j = in_row - k * done;
                const __local pair *from = a + row * length + in_row;
                __local pair *to = b + row * length + 4 * k * done + j;
                const pair c0 = from[0], c1 = TIMES(from[apart], ROOT(j * m));
                const pair c2 = TIMES(from[2 * apart], ROOT(2 * j * m)), c3 = TIMES(from[3 * apart], ROOT(3 * j * m));
                const pair sum = c0 + c2, less = c0 - c2, odd = c1 + c3, side = sign * (c1 - c3);
                to[0] = sum + odd;
                to[done] = (pair)(less.x - side.y, less.y + side.x);
                to[2 * done] = sum - odd;
                to[3 * done] = (pair)(less.x + side.y, less.y - side.x);
            }
        } else if (r == 2) {
            for (int t = id; t < count * apart; t += ${work_items}) {
                const int row = t / apart, in_row = t - row * apart, k = in_row / done, j = in_row - k * done;
                const __local pair *from = a + row * length + in_row;
                __local pair *to = b + row * length + 2 * k * done + j;
                const pair c0 = from[0], c1 = TIMES(from[apart], ROOT(j * m));
                to[0] = c0 + c1;
                to[done] = c0 - c1;
            }
        } else {
            // a work-item sums up one result of an odd factor
            for (int t = id; t < count * length; t += ${work_items}) {
                const int row = t / length, at = t - row * length, p = at / apart, in_row = at - p * apart;
                const int k = in_row / done, j = in_row - k * done, turn = (j + p * done) * m;
                const __local pair *from = a + row * length + in_row;
                pair sum = from[0];
                for (int q = 1, w = turn; q < r; ++q) {
                    sum += TIMES(from[q * apart], ROOT(w));
                    w += turn;
                    w -= w >= length ? length : 0;
                }
                b[row * length + (r * k + p) * done + j] = sum;
            }
        }
        done *= r;
        __local pair *kept = a;
        a = b;
        b = kept;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return a;
}

<%def name="place(total)">\
% if rows_fastest:
        const int k = i / count, row = i - k * count;
% else:
        const int row = i / ${total}, k = i - row * ${total};
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void fft_groups(
    const __global real *x, const long x_start, __global real *y, const long y_start,
    const __global pair *roots, const long roots_start,
% if twisted:
    const __global pair *twist, const long twist_start,
% endif
% if chirped:
    const __global pair *chirp, const long chirp_start,
    const __global pair *filtered, const long filtered_start,
% endif
    const int rows, const int share, const int n, const int kept, const int length, const ulong radices,
    const long x_step, const long y_step, const real sign, const real scale\
% for d in range(1, outer + 1):
,
    const int size_${d}, const long x_stride_${d}, const long y_stride_${d}, const long twist_stride_${d}\
% endfor
)
{
    __local pair arrays[2][${items}];
    __local long x_at[${most_rows}], y_at[${most_rows}]${f", twist_at[{most_rows}]" if twisted else ""};
    const int id = (int)get_local_id(0), first = (int)get_group_id(0) * share, count = min(share, rows - first);
    x += x_start;
    y += y_start;
    roots += roots_start;
    for (int row = id; row < count; row += ${work_items}) {
        int rest = first + row;
% for d in range(outer, 0, -1):
        const int i_${d} = rest % size_${d};
        rest /= size_${d};
% endfor
% for name, step in (("x_at", "x"), ("y_at", "y"), *([("twist_at", "twist")] if twisted else [])):
        ${name}[row] = ${" + ".join(f"i_{d} * {step}_stride_{d}" for d in range(1, outer + 1)) or "0"};
% endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local pair *a = arrays[0];
    for (int i = id; i < count * n; i += ${work_items}) {
${place("n")}\
% if source == "real":
        const pair value = (pair)(x[x_at[row] + k * x_step], 0);
% elif source == "half":
        pair value = vload2(x_at[row] + min(k, n - k) * x_step, x);
        // the first is real, whatever was given, and so is the middle
        value.y = k == 0 || 2 * k == n ? 0 : 2 * k > n ? -value.y : value.y;
% else:
        const pair value = vload2(x_at[row] + k * x_step, x);
% endif
        a[row * length + k] = ${"TIMES(value, chirp[chirp_start + k])" if chirped else "value"};
    }
% if chirped:
    for (int i = id; i < count * (length - n); i += ${work_items}) {
        const int row = i / (length - n), k = i - row * (length - n);
        a[row * length + n + k] = 0;
    }
    a = transform(a, arrays[1], roots, 1, -1, count, length, radices);
    for (int i = id; i < count * length; i += ${work_items}) {
        const pair spectrum = a[i], factor = filtered[filtered_start + i % length];
        a[i] = TIMES(spectrum, factor);
    }
    a = transform(a, a == arrays[0] ? arrays[1] : arrays[0], roots, -1, 1, count, length, radices);
% else:
    a = transform(a, arrays[1], roots, 1, sign, count, length, radices);
% endif
    for (int i = id; i < count * kept; i += ${work_items}) {
${place("kept")}\
        pair value = a[row * length + k];
% if chirped:
        value = TIMES(value, chirp[chirp_start + k]);
% endif
        value *= scale;
% if twisted:
        const pair factor = twist[twist_start + twist_at[row] + k];
        value = TIMES(value, factor);
% endif
% if target == "complex":
        vstore2(value, y_at[row] + k * y_step, y);
% else:
        y[y_at[row] + k * y_step] = value.x;
% endif
    }
}
