<%doc>
GEMM of few rows: C = act(op(A) B + bias + residual), batched, row-major, B with its rows along n.

A work-item holds item_m rows by vec_n neighbouring columns of C and reads B once, straight from
memory; local_k of them share the same columns, take unroll_k steps of the reduction in turn, and
add up in local memory. Rows past the edge read the last one again, columns past it move back to
the last vec_n; neither is stored twice.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m              rows of C per work-item
vec_n               columns of C per work-item, and width of loads
unroll_k            steps of the reduction that a work-item takes at a time
local_n, local_k    neighbours along n, and slices of k, per group
sum_rows            rows of a work-item that slices exchange at a time
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
trans_a             A is stored [k, m]
edge_m, edge_n      the block does not divide the size
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_matrix_terms
    from oclgen.families.parts.expressions import lane
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    vf = vector(vec_n)
    rows, steps = range(item_m), range(unroll_k)
    vec_k = 1 if trans_a else unroll_k
    sums = sum_rows * local_n * vec_n

    def of_a(i, u):
        return f"x{i}_{u}" if trans_a else lane(f"x{i}", vec_k, u)
    plus_terms = plus_matrix_terms(bias, residual)
    aligned = [f"IS_ALIGNED(b + n0, ld_b, {elem_bytes}, {vec_n})"] * (vec_n > 1)
    aligned += [f"IS_ALIGNED(a + k_first, ld_a, {elem_bytes}, {vec_k})"] * (vec_k > 1)
%>\
${preamble}
% if not split:
${activation}
% endif

<%def name="block(load)">\
% for u in steps:
            const ${vf} y${u} = ${load}${vec_n}(from + ${u} * (long)ld_b);
% endfor
% for i in rows:
% if trans_a:
% for u in steps:
            const float x${i}_${u} = LOAD1(a${i} + (p + ${u}) * (long)ld_a);
% endfor
% else:
            const ${vector(vec_k)} x${i} = ${load}${vec_k}(a${i} + p);
% endif
% for u in steps:
            acc${i} = ${of_a(i, u)} * y${u} + acc${i};
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_n}, ${local_k}, 1)))
void gemm_columns(
${common.parameters(c_type, split)})
{
    const int lane = (int)get_local_id(0), part = (int)get_local_id(1);
    const int m0 = (int)get_group_id(1) * ${item_m};
    const int n_group = (int)get_group_id(0) * ${local_n * vec_n};
    const int n0 = ${f"min(n_group + lane * {vec_n}, n - {vec_n})" if edge_n else f"n_group + lane * {vec_n}"};
${common.slice_of_item(split)}\
% for i in rows:
    __global const elem_t *a${i} = a + ${f"min(m0 + {i}, m - 1)" if edge_m else f"(m0 + {i})"}${"" if trans_a else " * (long)ld_a"};
% endfor
    ${vf} ${", ".join(f"acc{i} = 0.0f" for i in rows)};

    int p = k_first + part * ${unroll_k};
    __global const elem_t *from = b + p * (long)ld_b + n0;
    const long ahead = ${local_k * unroll_k} * (long)ld_b;
% if aligned:
    if (${" && ".join(aligned)}) {
        for (; p + ${unroll_k} <= k_last; p += ${local_k * unroll_k}, from += ahead) {
${block("ALIGNED_LOAD")}\
        }
    }
% endif
    for (; p + ${unroll_k} <= k_last; p += ${local_k * unroll_k}, from += ahead) {
${block("LOAD")}\
    }
% if unroll_k > 1:
    for (; p < k_last; ++p, from += ld_b) {
        // the last steps are fewer than unroll_k: one slice has them all
        const ${vf} y = LOAD${vec_n}(from);
% for i in rows:
        acc${i} = LOAD1(a${i} + ${"p * (long)ld_a" if trans_a else "p"}) * y + acc${i};
% endfor
    }
% endif

    __local float sums[${local_k * sums}] __attribute__((aligned(16)));
    __local ${vf} *mine = (__local ${vf} *)sums + part * ${sum_rows * local_n} + lane;
    const int id = part * ${local_n} + lane;
% for first in range(0, item_m, sum_rows):
% if first:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% for r in range(sum_rows):
    mine[${r * local_n}] = acc${first + r};
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = id; s < ${sums}; s += ${local_n * local_k}) {
        const int row = m0 + ${first} + s / ${local_n * vec_n};
        const int place = n_group + s % ${local_n * vec_n};
% if edge_n:
        // where the last columns moved back to
        const int column = min(place / ${vec_n} * ${vec_n}, n - ${vec_n}) + place % ${vec_n};
        if (${"row < m && " if edge_m else ""}column >= place / ${vec_n} * ${vec_n}) {
% else:
        const int column = place;
        ${"if (row < m) " if edge_m else ""}{
% endif
            float sum = sums[s];
            for (int other = 1; other < ${local_k}; ++other) {
                sum += sums[s + other * ${sums}];
            }
            const float value = sum${plus_terms};
            ${"c[row * (long)ld_c + column] = value" if split else "STORE1(ACT(value), c + row * (long)ld_c + column)"};
        }
    }
% endfor
}
