<%doc>
GEMM of many rows: C = act(op(A) op(B) + bias + residual), batched, row-major, B small.

A work-group has item_m * local_m rows of C. It copies B to local memory as [k][n], and its rows of A
by 16 bytes, of which several are on their way at once. Where A is stored [k, m], neighbouring
work-items read neighbours straight from memory. Sums return through the same local memory, and leave
by 16 bytes. Both copies are of one piece of memory where rows lie close, and go row by row where rows
in local memory lie apart; the last rows of C, and rows that are not aligned, move element by element.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, item_n      rows, local_m apart, and neighbouring columns of C per work-item
local_m, local_n    work-items along m and along n per group
n, k                columns of C, and steps of the reduction
trans_a, trans_b    A is stored [k, m], B [n, k]
cells               floats of local memory for A, and for C behind it
pitch_a, pitch_c    floats of local memory between their rows
width               elements of 16 bytes
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%!
    from math import gcd
    from oclgen.families.parts.expressions import lane, lanes_of, vector_of
    from oclgen.families.parts.epilogue import plus_residual
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    group, rows, columns = local_m * local_n, item_m * local_m, item_n * local_n
    pitch_b = -(-columns // 4) * 4
    ahead, steps = 4, gcd(k, 4)
    in_vectors = rows % 8 == 0  # rows of any length are whole vectors then
    # vectors of a work-item's columns: (first column, width)
    parts = [(j, 4) for j in range(0, item_n - 3, 4)]
    parts += [(item_n // 4 * 4, 2)] * (item_n % 4 > 1) + [(item_n - 1, 1)] * (item_n % 2)
    stored = min(n, columns)
%>\
${preamble}
${activation}

<%def name="place(row, pitch)">\
% if pitch == row:
s * ${width}\
% else:
s / ${row // width} * ${pitch} + s % ${row // width} * ${width}\
% endif
</%def>\
<%def name="of_memory(row, pitch, ld)">\
% if pitch == row:
s * ${width}\
% else:
s / ${row // width} * (long)${ld} + s % ${row // width} * ${width}\
% endif
</%def>\
<%def name="aligned(matrix, row, pitch)">\
% if pitch == row:
ld_${matrix} == ${row} && ((size_t)${matrix} & 15) == 0\
% else:
IS_ALIGNED(${matrix}, ld_${matrix}, ${elem_bytes}, ${width})\
% endif
</%def>\
<%def name="copies_of_a(count)">\
            ${vector(width)} x[${count}];
            #pragma unroll
            for (int u = 0; u < ${count}; ++u) {
                const int s = at + u * ${group};
                x[u] = ALIGNED_LOAD${width}(a + ${of_memory(k, pitch_a, "ld_a")});
            }
            #pragma unroll
            for (int u = 0; u < ${count}; ++u) {
                const int s = at + u * ${group};
                __local float4 *to = (__local float4 *)(cells + ${place(k, pitch_a)});
% for q in range(width // 4):
                to[${q}] = ${lanes_of("x[u]", width, 4 * q, 4)};
% endfor
            }
</%def>\
<%def name="steps_of_k(count)">\
% for i in range(item_m):
% if trans_a:
            const float ${", ".join(f"x{i}_{u} = LOAD1(a + (p + {u}) * (long)ld_a + row{i})" for u in range(count))};
% else:
            const ${vector(count)} x${i} = *(__local const ${vector(count)} *)(mine + ${i * local_m * pitch_a} + p);
% endif
% endfor
% for u in range(count):
% for j, each in parts:
            const ${vector(each)} y${u}_${j} = *(__local const ${vector(each)} *)(small + (p + ${u}) * ${pitch_b} + first + ${j});
% for i in range(item_m):
            acc${i}_${j} = ${f"x{i}_{u}" if trans_a else lane(f"x{i}", count, u)} * y${u}_${j} + acc${i}_${j};
% endfor
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_m}, ${local_n}, 1)))
void gemm_tall(
${common.parameters("elem_t", False)})
{
    __local float cells[${cells}] __attribute__((aligned(16)));
    __local float small[${k * pitch_b}] __attribute__((aligned(16)));
    const int lane = (int)get_local_id(0), id = (int)get_local_id(1) * ${local_m} + lane;
    const int m0 = (int)get_group_id(0) * ${rows}, n0 = (int)get_group_id(1) * ${columns};
    const int first = (int)get_local_id(1) * ${item_n}, last = m - 1 - m0;
${common.slice_of_item(False)}\
    a += m0${"" if trans_a else " * (long)ld_a"};
    c += m0 * (long)ld_c + n0;
% if residual:
    residual += m0 * (long)ld_c + n0;
% endif

    for (int s = id; s < ${k * columns}; s += ${group}) {
% if trans_b:
        const int p = s % ${k}, j = s / ${k};
        small[p * ${pitch_b} + j] = n0 + j < ${n} ? LOAD1(b + (n0 + j) * (long)ld_b + p) : 0.0f;
% else:
        const int p = s / ${columns}, j = s % ${columns};
        small[p * ${pitch_b} + j] = n0 + j < ${n} ? LOAD1(b + p * (long)ld_b + n0 + j) : 0.0f;
% endif
    }
% if trans_a:
% for i in range(item_m):
    const int row${i} = min(lane + ${i * local_m}, last);
% endfor
% else:
% if in_vectors:
<% vectors = rows * k // width; turns = vectors // group // ahead * ahead %>\
    if (${rows - 1} <= last && ${aligned("a", k, pitch_a)}) {
        int at = id;
% if turns:
        for (; at < ${turns * group}; at += ${ahead * group}) {
${copies_of_a(ahead)}\
        }
% endif
        for (; at < ${vectors}; at += ${group}) {
${copies_of_a(1)}\
        }
    } else
% endif
    for (int s = id; s < ${rows * k}; s += ${group}) {
        cells[s / ${k} * ${pitch_a} + s % ${k}] = LOAD1(a + min(s / ${k}, last) * (long)ld_a + s % ${k});
    }
% endif
    barrier(CLK_LOCAL_MEM_FENCE);

% for j, each in parts:
% if bias == "n":
    const ${vector(each)} bias${j} = ${vector_of(f"LOAD1(bias + min(n0 + first + {j + e}, {n - 1}))" for e in range(each))};
    ${vector(each)} ${", ".join(f"acc{i}_{j} = bias{j}" for i in range(item_m))};
% elif bias == "m":
    ${vector(each)} ${", ".join(f"acc{i}_{j} = LOAD1(bias + m0 + min(lane + {i * local_m}, last))" for i in range(item_m))};
% else:
    ${vector(each)} ${", ".join(f"acc{i}_{j} = 0.0f" for i in range(item_m))};
% endif
% endfor
% if not trans_a:
    __local const float *mine = cells + lane * ${pitch_a};
% endif
    #pragma unroll ${8 // steps}
    for (int p = 0; p < ${k}; p += ${steps}) {
${steps_of_k(steps)}\
    }

    barrier(CLK_LOCAL_MEM_FENCE);
% for j, each in parts:
% for e in range(each):
% if local_n > 1 or item_n > n:
    if (first + ${j + e} < ${stored})
% endif
    {
% for i in range(item_m):
        cells[(lane + ${i * local_m}) * ${pitch_c} + first + ${j + e}] = ${lane(f"acc{i}_{j}", each, e)};
% endfor
    }
% endfor
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
% if in_vectors and n <= columns:
    if (${rows - 1} <= last && ${aligned("c", n, pitch_c)}) {
        for (int s = id; s < ${rows * n // width}; s += ${group}) {
            __global elem_t *to = c + ${of_memory(n, pitch_c, "ld_c")};
            __local const float4 *sums = (__local const float4 *)(cells + ${place(n, pitch_c)});
            const ${vector(width)} v = ${"(float8)(sums[0], sums[1])" if width == 8 else "sums[0]"}${plus_residual(residual, width, "to")};
            ALIGNED_STORE${width}(${vector_of(f"ACT({lane('v', width, e)})" for e in range(width))}, to);
        }
    } else
% endif
    for (int s = id; s < ${rows * stored}; s += ${group}) {
        const int row = s / ${stored}, column = s % ${stored};
        if (row <= last && n0 + column < ${n}) {
            __global elem_t *to = c + row * (long)ld_c + column;
            const float value = cells[row * ${pitch_c} + column]${plus_residual(residual, 1, "to")};
            STORE1(ACT(value), to);
        }
    }
}
