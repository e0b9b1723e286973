<%doc>
Register-tiled GEMM without local memory: C = act(op(A) op(B) + bias + residual),
batched, row-major.

One work-item computes item_m x item_n of C in private memory; a column of A is broadcast against
vectors of B. Rows past the edge read the last row again and are not stored. A column block that
crosses the edge begins earlier where it is shifted, and its work-item stores the columns alone that
no other one has; else it takes the vectors that cross the edge in single elements. Packed operands
need neither: their panels are padded with zeros. Products are written a * b + c, which every compiler tried contracts
to a fused multiply-add; PoCL 3.1 makes a multiplication and an addition of mad().

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, item_n      rows and columns of C per work-item; item_n is a multiple of vec_n
vec_n               width of loads, stores and accumulators along n
local_m, local_n    work-items per group
unroll_k            steps of the reduction that are written out per loop iteration
pack_a, pack_b      the operand comes as fp32 panels [m / item_m][k][item_m], [n /
                    item_n][k][item_n]
loop_m              blocks of item_m rows that a work-item computes one after the other, so that
                    its columns of B stay in the nearest cache
order               "m" or "n": the dimension of C along which work-groups follow each other
split_k             slices of k; each writes a plane of partial sums, which another kernel adds.
                    Slices run one behind the other: this is also the blocking of k for caches
ahead, line         steps of k by which rows of B are asked for before they are read, or 0; elements of
                    a cache's line. A processor's own prefetcher stops at the end of a page, and rows
                    of a wide B lie on a page each
trans_a, trans_b    A is stored [k, m], B is stored [n, k]
edge_m, edge_n      item_m does not divide m, item_n does not divide n
shifted             the last block of columns ends at n: only where n is at least item_n
edge_k              unroll_k does not divide k
text                loads, terms and stores: see `gemm_register_text`
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%! from oclgen.render import vector %>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    vf = vector(vec_n)
    rows, columns = range(item_m), range(0, item_n, vec_n)
    dim_m, dim_n = (0, 1) if order == "m" else (1, 0)
    guard_rows = edge_m and not pack_a
    guard_columns = edge_n and not pack_b and not shifted
    split = split_k > 1
    c_type = "float" if split else "elem_t"
%>\
${preamble}
% if ahead:
<%include file="ask_for.cl.mako"/>\
% endif
% if not split:
${activation}
% endif

% if guard_columns:
${vf} load_part(__global const elem_t *p, const long stride, const int count)
{
    if (stride == 1 && count >= ${vec_n}) {
        return LOAD${vec_n}(p);
    }
    float part[${vec_n}];
    for (int s = 0; s < ${vec_n}; ++s) {
        part[s] = s < count ? LOAD1(p + s * stride) : 0.0f;
    }
    return ${"part[0]" if vec_n == 1 else f"vload{vec_n}(0, part)"};
}

% endif
% if shifted:
${common.store_own(vec_n)}\
% elif edge_n:
${common.store_halves(vec_n)}\
% endif
<%def name="step(u, guarded)">\
                {
% if ahead:
% for column in range(0, item_n, line):
                    ASK_FOR(pb + ${ahead + u} * (long)ld_b + ${column}, 3);
% endfor
% endif
% for j in columns:
                    const ${vf} b${j} = ${text.load_b(j, u, guarded)};
% endfor
% for i in rows:
                    const ${vf} a${i} = (${vf})(${text.load_a(i, u)});
% for j in columns:
                    acc${i}_${j} = a${i} * b${j} + acc${i}_${j};
% endfor
% endfor
                }
</%def>\
<%def name="advance(steps)">\
% if pack_a:
                pa += ${steps * item_m};
% else:
% for i in rows:
                pa${i} += ${f"{steps} * (long)ld_a" if trans_a else steps};
% endfor
% endif
                pb += ${steps * item_n if pack_b else steps if trans_b else f"{steps} * (long)ld_b"};
</%def>\
<%def name="reduction(guarded)">\
            int p = k_first;
            for (; p + ${unroll_k} <= k_last; p += ${unroll_k}) {
% for u in range(unroll_k):
${step(u, guarded)}\
% endfor
${advance(unroll_k)}\
            }
% if edge_k:
            for (; p < k_last; ++p) {
${step(0, guarded)}\
${advance(1)}\
            }
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(${f"{local_m}, {local_n}" if order == "m" else f"{local_n}, {local_m}"}, 1)))
void gemm_register(
    __global const ${"float" if pack_a else "elem_t"} *restrict a, const long offset_a,
    const int ld_a, const long batch_a,
    __global const ${"float" if pack_b else "elem_t"} *restrict b, const long offset_b,
    const int ld_b, const long batch_b,
    __global ${c_type} *restrict c, const long offset_c,
    const int ld_c, const long batch_c,
${term_parameters}\
    const int m, const int n, const int k${", const int slice, const int batch" if split else ""})
{
% if shifted:
    const int own = (int)get_global_id(${dim_n}) * ${item_n};
    if (own >= n) {
        return;
    }
    const int n0 = min(own, n - ${item_n});
% else:
    const int n0 = (int)get_global_id(${dim_n}) * ${item_n};
    if (n0 >= n) {
        return;
    }
% endif
${common.slice_of_item(split)}\
% if pack_b:
    b += get_global_id(${dim_n}) * (long)ld_b + k_first * (long)${item_n};
% elif trans_b:
    b += n0 * (long)ld_b + k_first;
% else:
    b += k_first * (long)ld_b + n0;
% endif

    const int block0 = (int)get_global_id(${dim_m}) * ${loop_m};
    for (int block = block0; block < block0 + ${loop_m}; ++block) {
        const int m0 = block * ${item_m};
        if (m0 >= m) {
            return;
        }
        __global const ${"float" if pack_b else "elem_t"} *pb = b;
% if pack_a:
        __global const float *pa = a + block * (long)ld_a + k_first * (long)${item_m};
% else:
% for i in rows:
<%
    row = f"min(m0 + {i}, m - 1)" if guard_rows else f"(m0 + {i})"
%>\
        __global const elem_t *pa${i} = a + ${f"k_first * (long)ld_a + {row}" if trans_a else f"{row} * (long)ld_a + k_first"};
% endfor
% endif
% for i in rows:
        ${vf} ${", ".join(f"acc{i}_{j} = 0.0f" for j in columns)};
% endfor

% if guard_columns:
        if (n0 + ${item_n} > n) {
${reduction(True)}\
        } else
% endif
        {
${reduction(False)}\
        }

${common.store_rows(rows, columns, vec_n, shifted)}\
    }
}
