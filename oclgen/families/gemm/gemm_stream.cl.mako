<%doc>
GEMM of few rows: C = act(op(A) B + bias + residual), batched, row-major, B with its rows along n.

A work-item has item_m x tile_n of C, whose sums lie in private memory: a cache, on processors. It reads
unroll_k rows of B at once, all tile_n columns of them, and adds their products to the sums. Rows of C
past the edge read the last row of A again and are not stored. The last vector of a row ends at n: of its
lanes those are stored that no vector before it has.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, tile_n      rows and columns of C per work-item
vec_n               width of loads, stores and sums
unroll_k            rows of B at once
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
trans_a             A is stored [k, m]
edge_m, edge_n      item_m does not divide m, vec_n does not divide n
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_matrix_terms, plus_residual
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    vf = vector(vec_n)
    rows = range(item_m)
    terms = {"none": "", "m": " + LOAD1(bias + row)", "n": f" + LOAD{vec_n}(bias + column)"}[bias]
    terms += plus_residual(residual, vec_n, "c + row * (long)ld_c + column")

    def store(width, value):
        place = "c + row * (long)ld_c + column"
        if not split:
            return f"STORE{width}(ACT({value}), {place})"
        return f"vstore{width}({value}, 0, {place})" if width > 1 else f"*({place}) = {value}"
%>\
${preamble}
% if not split:
${activation}
% endif

<%def name="add(steps, j, place)">\
% for u in range(steps):
                const ${vf} y${u} = LOAD${vec_n}(b${u} + ${place});
% endfor
% for i in rows:
                ${vf} sum${i} = sums[${j}][${i}];
% for u in range(steps):
                sum${i} = x${i}_${u} * y${u} + sum${i};
% endfor
                sums[${j}][${i}] = sum${i};
% endfor
</%def>\
<%def name="steps_of_pass(steps)">\
% for u in range(steps):
            __global const elem_t *b${u} = b + (p + ${u}) * (long)ld_b + n0;
% for i in rows:
            const float x${i}_${u} = LOAD1(a${i} + ${f"(p + {u}) * (long)ld_a" if trans_a else f"p + {u}"});
% endfor
% endfor
            for (int j = 0; j < whole; ++j) {
${add(steps, "j", f"j * {vec_n}")}\
            }
% if edge_n:
            if (whole * ${vec_n} < width) {
${add(steps, "whole", f"width - {vec_n}")}\
            }
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_stream(
${common.parameters(c_type, split)})
{
    const int m0 = (int)get_group_id(1) * ${item_m};
    const int n0 = (int)get_group_id(0) * ${tile_n};
    const int width = min(n - n0, ${tile_n}), whole = width / ${vec_n};
${common.slice_of_item(split)}\
% for i in rows:
    __global const elem_t *a${i} = a + ${f"min(m0 + {i}, m - 1)" if edge_m else f"(m0 + {i})"}${"" if trans_a else " * (long)ld_a"};
% endfor
    ${vf} sums[${tile_n // vec_n}][${item_m}];
    for (int j = 0; j < ${tile_n // vec_n}; ++j) {
% for i in rows:
        sums[j][${i}] = 0.0f;
% endfor
    }

    int p = k_first;
    for (; p + ${unroll_k} <= k_last; p += ${unroll_k}) {
${steps_of_pass(unroll_k)}\
    }
% if unroll_k > 1:
    for (; p < k_last; ++p) {
${steps_of_pass(1)}\
    }
% endif

    for (int i = 0; i < ${f"min({item_m}, m - m0)" if edge_m else item_m}; ++i) {
        const int row = m0 + i;
        for (int j = 0; j < whole; ++j) {
            const int column = n0 + j * ${vec_n};
            const ${vf} value = sums[j][i]${terms};
            ${store(vec_n, "value")};
        }
% if edge_n:
        if (whole * ${vec_n} < width) {
            float part[${vec_n}];
            vstore${vec_n}(sums[whole][i], 0, part);
            const int first = n0 + width - ${vec_n};
            for (int column = n0 + whole * ${vec_n}; column < n; ++column) {
                const float value = part[column - first]${plus_matrix_terms(bias, residual)};
                ${store(1, "value")};
            }
        }
% endif
    }
}
