<%doc>
Fourier transforms of rows on a processor: W rows are the lanes of vectors, so that no step turns items
between lanes. A step combines r transforms of `done` items to one of r times as many (Stockham, in
Cochran et al. 1967); steps read one private array and write the other, and leave the items in order.

real       C's type of a part
width      W
longest    items from array to array; n, or length, is less
source     complex, real, or half of a Hermitian spectrum
target     complex or real
twisted    whether results are multiplied by factors at [twist of the row + place]
outer      dimensions that number the rows
radix      more than the largest factor
chirped    whether items are convolved with a chirp (Bluestein 1970), by two transforms of `length`
           items, the second one of conjugates; arrays then lie in `spaces`
transpose  text of the function transpose(rows), "" if a block is not turned in registers
</%doc>\
<%
    V = f"{real}{width}"
    lanes = range(width)
    numbers = lambda kind: width if kind == "real" else width // 2
    space = "__global" if chirped else "__private"
%>\
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
#define TURN(a, b, w, c, d) a = w.x * c - w.y * d; b = w.x * d + w.y * c;
typedef ${V} V;
${transpose}

<%def name="scatter(name, count)">
% for name, step in (("from", "x"), ("to", "y"), *([("twist_at", "twist")] if twisted else [])):
            ${name}[lane] = 0\
% for d in range(1, outer + 1):
 + i_${d} * ${step}_stride_${d}\
% endfor
;
% endfor
</%def>\
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void fft_rows(
    const __global ${real} *x, const long x_start, __global ${real} *y, const long y_start,
    const __global ${real}2 *roots, const long roots_start,
% if chirped:
    const __global ${real}2 *turns, const long turns_start,
    const __global ${real}2 *filter, const long filter_start,
    __global ${real} *spaces, const long spaces_start, const long length,
% endif
% if twisted:
    const __global ${real}2 *twist, const long twist_start,
% endif
    const long rows, const long share, const long n, const long kept, const long radices,
    const long x_step, const long y_step, const ${real} sign, const ${real} scale\
% for d in range(1, outer + 1):
,
    const long size_${d}, const long x_stride_${d}, const long y_stride_${d}, const long twist_stride_${d}\
% endfor
)
{
% if chirped:
    turns += turns_start;
    filter += filter_start;
    __global V *arrays = (__global V *)(spaces + spaces_start) + get_global_id(0) * ${4 * longest};
% else:
    V arrays[${4 * longest}];
    const long length = n;
% endif
    x += x_start;
    y += y_start;
    roots += roots_start;
% if twisted:
    twist += twist_start;
% endif
    const long begin = get_global_id(0) * share;
    for (long first = begin; first < min(begin + share, rows); first += ${width}) {
        long from[${width}], to[${width}], twist_at[${width}];
        for (int lane = 0; lane < ${width}; ++lane) {
            long rest = min(first + lane, rows - 1);  // lanes behind the last row repeat it
% for d in range(outer, 0, -1):
            const long i_${d} = rest % size_${d};
            rest /= size_${d};
% endfor
${scatter("", 0)}\
        }
        ${space} V *a = arrays, *a_i = a + ${longest}, *b = a_i + ${longest}, *b_i = b + ${longest};
        const bool beside = ${f"from[{width - 1}] - from[0] == {width - 1} && to[{width - 1}] - to[0] == {width - 1} && x_stride_{outer} == 1 && y_stride_{outer} == 1" if outer else "false"};
        const long given = ${"n / 2 + 1" if source == "half" else "n"};
        if (beside) {
% if source == "real":
            for (long k = 0; k < given; ++k) {
                a[k] = vload${width}(0, x + from[0] + k * x_step);
                a_i[k] = 0;
            }
% else:
            for (long k = 0; k < given; ++k) {
                const V low = vload${width}(0, x + (from[0] + k * x_step) * 2);
                const V high = vload${width}(1, x + (from[0] + k * x_step) * 2);
                a[k] = (V)(low.even, high.even);
                a_i[k] = (V)(low.odd, high.odd);
            }
% endif
% if transpose:
        } else if (x_step == 1 && given >= ${numbers(source)}) {
            for (long k = 0; k < given; k += ${numbers(source)}) {
                k = min(k, given - ${numbers(source)});  // the last block repeats items
                V block[${width}];
                for (int lane = 0; lane < ${width}; ++lane)
                    block[lane] = vload${width}(0, x + (from[lane] + k)${"" if source == "real" else " * 2"});
                transpose(block);
                for (int i = 0; i < ${numbers(source)}; ++i) {
                    a[k + i] = block[${"i" if source == "real" else "2 * i"}];
                    a_i[k + i] = ${"0" if source == "real" else "block[2 * i + 1]"};
                }
            }
% endif
        } else {
            for (long k = 0; k < given; ++k) {
                const long at = k * x_step;
% if source == "real":
                a[k] = (V)(${", ".join(f"x[from[{lane}] + at]" for lane in lanes)});
                a_i[k] = 0;
% else:
% for part, name in enumerate(("a", "a_i")):
                ${name}[k] = (V)(${", ".join(f"x[(from[{lane}] + at) * 2 + {part}]" for lane in lanes)});
% endfor
% endif
            }
        }
% if source == "half":
        a_i[0] = 0;  // this is real, whatever was given, and so is the middle
        if (n % 2 == 0)
            a_i[n / 2] = 0;
        for (long k = 1; 2 * k < n; ++k) {
            a[n - k] = a[k];
            a_i[n - k] = -a_i[k];
        }
% endif
% if chirped:
        for (long k = 0; k < n; ++k) {
            const V c = a[k], d = a_i[k];
            TURN(a[k], a_i[k], turns[k], c, d)
        }
        for (long k = n; k < length; ++k)
            a[k] = a_i[k] = 0;
        for (int round = 0; round < 2; ++round) {
% endif
        long done = 1;
        for (ulong left = radices; left; left >>= 8) {
            const int r = left & 255;
            const long m = length / (done * r), apart = m * done;
            for (long j = 0; j < done; ++j) {
                const long turn = j * m;
                if (r == 4) {
                    const ${real}2 w1 = roots[turn], w2 = roots[2 * turn], w3 = roots[3 * turn];
                    for (long k = 0; k < m; ++k) {
                        const long in = k * done + j, out = 4 * k * done + j;
                        V c1, d1, c2, d2, c3, d3;
                        TURN(c1, d1, w1, a[in + apart], a_i[in + apart])
                        TURN(c2, d2, w2, a[in + 2 * apart], a_i[in + 2 * apart])
                        TURN(c3, d3, w3, a[in + 3 * apart], a_i[in + 3 * apart])
                        const V sum = a[in] + c2, sum_i = a_i[in] + d2, less = a[in] - c2, less_i = a_i[in] - d2;
                        const V odd = c1 + c3, odd_i = d1 + d3, side = sign * (c1 - c3), side_i = sign * (d1 - d3);
                        b[out] = sum + odd;
                        b_i[out] = sum_i + odd_i;
                        b[out + done] = less - side_i;
                        b_i[out + done] = less_i + side;
                        b[out + 2 * done] = sum - odd;
                        b_i[out + 2 * done] = sum_i - odd_i;
                        b[out + 3 * done] = less + side_i;
                        b_i[out + 3 * done] = less_i - side;
                    }
                } else if (r == 2) {
                    const ${real}2 w1 = roots[turn];
                    for (long k = 0; k < m; ++k) {
                        const long in = k * done + j, out = 2 * k * done + j;
                        V c1, d1;
                        TURN(c1, d1, w1, a[in + apart], a_i[in + apart])
                        const V c0 = a[in], d0 = a_i[in];
                        b[out] = c0 + c1;
                        b_i[out] = d0 + d1;
                        b[out + done] = c0 - c1;
                        b_i[out + done] = d0 - d1;
                    }
                } else if (r == 3) {
                    const ${real}2 w1 = roots[turn], w2 = roots[2 * turn];
                    const ${real} height = sign * (${real})0.86602540378443864676;
                    for (long k = 0; k < m; ++k) {
                        const long in = k * done + j, out = 3 * k * done + j;
                        V c1, d1, c2, d2;
                        TURN(c1, d1, w1, a[in + apart], a_i[in + apart])
                        TURN(c2, d2, w2, a[in + 2 * apart], a_i[in + 2 * apart])
                        const V c0 = a[in], d0 = a_i[in], sum = c1 + c2, sum_i = d1 + d2;
                        const V side = height * (c1 - c2), side_i = height * (d1 - d2);
                        const V base = c0 - sum / 2, base_i = d0 - sum_i / 2;
                        b[out] = c0 + sum;
                        b_i[out] = d0 + sum_i;
                        b[out + done] = base - side_i;
                        b_i[out + done] = base_i + side;
                        b[out + 2 * done] = base + side_i;
                        b_i[out + 2 * done] = base_i - side;
                    }
                } else {
                    for (long k = 0; k < m; ++k) {
                        const long in = k * done + j, out = r * k * done + j;
                        V even[${radix // 2}], even_i[${radix // 2}], odd[${radix // 2}], odd_i[${radix // 2}];
                        const V c0 = a[in], d0 = a_i[in];
                        for (int q = 1; 2 * q < r; ++q) {
                            V c, d, e, f;
                            const ${real}2 w = roots[turn * q], w_far = roots[turn * (r - q)];
                            TURN(c, d, w, a[in + q * apart], a_i[in + q * apart])
                            TURN(e, f, w_far, a[in + (r - q) * apart], a_i[in + (r - q) * apart])
                            even[q] = c + e;
                            even_i[q] = d + f;
                            odd[q] = c - e;
                            odd_i[q] = d - f;
                        }
                        // items q and r - q have conjugate roots
                        for (int p = 0; p <= r / 2; ++p) {
                            V sum = c0, sum_i = d0, side = 0, side_i = 0;
                            const int step = p * (int)(length / r);
                            for (int q = 1, at = step; 2 * q < r; ++q) {
                                const ${real}2 w = roots[at];
                                at += step;
                                at -= at >= length ? (int)length : 0;
                                sum += w.x * even[q];
                                sum_i += w.x * even_i[q];
                                side += w.y * odd[q];
                                side_i += w.y * odd_i[q];
                            }
                            b[out + p * done] = sum - side_i;
                            b_i[out + p * done] = sum_i + side;
                            if (p > 0) {
                                b[out + (r - p) * done] = sum + side_i;
                                b_i[out + (r - p) * done] = sum_i - side;
                            }
                        }
                    }
                }
            }
            done *= r;
            ${space} V *kept_a = a, *kept_i = a_i;
            a = b;
            a_i = b_i;
            b = kept_a;
            b_i = kept_i;
        }
% if chirped:
        const __global ${real}2 *factors = round ? turns : filter;
        for (long k = 0; k < (round ? n : length); ++k) {
            const V c = a[k], d = round ? -a_i[k] : a_i[k];
            V e, f;
            TURN(e, f, factors[k], c, d)
            a[k] = e;
            a_i[k] = round ? f : -f;
        }
        }
% endif
% if transpose and not twisted:
        if (!beside && y_step == 1 && kept >= ${numbers(target)}) {
            for (long k = 0; k < kept; k += ${numbers(target)}) {
                k = min(k, kept - ${numbers(target)});
                V block[${width}];
                for (int i = 0; i < ${numbers(target)}; ++i) {
                    block[${"i" if target == "real" else "2 * i"}] = a[k + i] * scale;
% if target == "complex":
                    block[2 * i + 1] = a_i[k + i] * scale;
% endif
                }
                transpose(block);
                for (int lane = 0; lane < ${width}; ++lane)
                    vstore${width}(block[lane], 0, y + (to[lane] + k)${"" if target == "real" else " * 2"});
            }
            continue;
        }
% endif
        for (long k = 0; k < kept; ++k) {
            const long at = k * y_step;
            V c = a[k] * scale;
% if target == "complex":
            V d = a_i[k] * scale;
% endif
% if twisted:
            ${real} t[${width}], t_i[${width}];
            for (int lane = 0; lane < ${width}; ++lane) {
                const ${real}2 w = twist[twist_at[lane] + k];
                t[lane] = w.x;
                t_i[lane] = w.y;
            }
            const V w = vload${width}(0, t), w_i = vload${width}(0, t_i), turned = c * w - d * w_i;
            d = c * w_i + d * w;
            c = turned;
% endif
% if target == "complex":
            if (beside) {
                V low, high;
                low.even = c.lo;
                low.odd = d.lo;
                high.even = c.hi;
                high.odd = d.hi;
                vstore${width}(low, 0, y + (to[0] + at) * 2);
                vstore${width}(high, 1, y + (to[0] + at) * 2);
                continue;
            }
% for lane in lanes:
            y[(to[${lane}] + at) * 2] = c.s${f"{lane:x}"};
            y[(to[${lane}] + at) * 2 + 1] = d.s${f"{lane:x}"};
% endfor
% else:
            if (beside) {
                vstore${width}(c, 0, y + to[0] + at);
                continue;
            }
% for lane in lanes:
            y[to[${lane}] + at] = c.s${f"{lane:x}"};
% endfor
% endif
        }
    }
}
