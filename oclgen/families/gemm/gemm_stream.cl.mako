<%doc>
GEMM of few rows: C = act(op(A) B + bias + residual), batched, row-major, B with its rows along n.

A work-item has item_m x tile_n of C, whose sums lie in local memory: a cache, on processors. It reads
unroll_k rows of B at once, all tile_n columns of them, and adds their products to the sums. Rows of C
past the edge read the last row of A again and are not stored.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, tile_n      rows and columns of C per work-item
vec_n               width of loads
unroll_k            rows of B at once
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
trans_a             A is stored [k, m]
edge_m              item_m does not divide m
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_matrix_terms
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    vf = vector(vec_n)
    rows = range(item_m)
    def sums(width, i, x):
        return f"sums[{i * tile_n} + {x}]" if width == 1 else f"vload{width}(0, sums + {i * tile_n} + {x})"
    plus_terms = plus_matrix_terms(bias, residual)
%>\
${preamble}
% if not split:
${activation}
% endif

<%def name="columns(width, steps)">\
% for u in range(steps):
            const ${vector(width)} y${u} = LOAD${width}(from + ${u} * (long)ld_b + x);
% endfor
% for i in rows:
            ${vector(width)} sum${i} = ${sums(width, i, "x")};
% for u in range(steps):
            sum${i} = x${i}_${u} * y${u} + sum${i};
% endfor
            ${f"sums[{i * tile_n} + x] = sum{i};" if width == 1 else f"vstore{width}(sum{i}, 0, sums + {i * tile_n} + x);"}
% endfor
</%def>\
<%def name="block(steps)">\
        __global const elem_t *from = b + p * (long)ld_b + n0;
% for i in rows:
% for u in range(steps):
        const float x${i}_${u} = LOAD1(a${i} + ${f"(p + {u}) * (long)ld_a" if trans_a else f"p + {u}"});
% endfor
% endfor
        int x = 0;
        for (; x + ${vec_n} <= count; x += ${vec_n}) {
${columns(vec_n, steps)}\
        }
% if vec_n > 1:
        for (; x < count; ++x) {
${columns(1, steps)}\
        }
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_stream(
${common.parameters(c_type, split)})
{
    __local float sums[${item_m * tile_n}] __attribute__((aligned(64)));
    const int m0 = (int)get_global_id(1) * ${item_m};
    const int n0 = (int)get_global_id(0) * ${tile_n}, count = min(${tile_n}, n - n0);
${common.slice_of_item(split)}\
% for i in rows:
    __global const elem_t *a${i} = a + ${f"min(m0 + {i}, m - 1)" if edge_m else f"(m0 + {i})"}${"" if trans_a else " * (long)ld_a"};
% endfor
    for (int x = 0; x < ${item_m * tile_n}; ++x) {
        sums[x] = 0.0f;
    }
    int p = k_first;
    for (; p + ${unroll_k} <= k_last; p += ${unroll_k}) {
${block(unroll_k)}\
    }
% if unroll_k > 1:
    for (; p < k_last; ++p) {
${block(1)}\
    }
% endif
    for (int i = 0; i < ${"min({}, m - m0)".format(item_m) if edge_m else item_m}; ++i) {
        for (int x = 0; x < count; ++x) {
            const int row = m0 + i, column = n0 + x;
            const float value = sums[i * ${tile_n} + x]${plus_terms};
            ${"c[row * (long)ld_c + column] = value" if split else "STORE1(ACT(value), c + row * (long)ld_c + column)"};
        }
    }
}
