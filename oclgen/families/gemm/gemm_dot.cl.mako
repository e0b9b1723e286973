<%doc>
GEMM by inner products: C = act(op(A) op(B) + bias + residual), batched, row-major, both
operands along k.

A work-item holds vec_k partial sums for each of item_m x item_n elements of C and multiplies
vectors along k of rows of A and of columns of B; local_k work-items share the same elements, read
neighbouring vectors, and add up in local memory. Rows and columns past the edge read the last one
again and are not stored.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, item_n      rows and columns of C per work-item
vec_k               width of loads and accumulators along k
local_k             work-items that share a reduction, a power of two
local_n             neighbours along n per group
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
a, b                operands; a `strided` one is stored [k, 1], its steps of k ld apart: see `Side`
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
    rows, columns = range(item_m), range(item_n)
    elements = [(i, j) for i in rows for j in columns]
    vf = vector(vec_k)
    aligned = " && ".join(
        f"IS_ALIGNED({side.name}, ld_{side.name}, {elem_bytes}, {vec_k})"
        for side in (a, b) if not side.strided
    )
    plus_terms = plus_matrix_terms(bias, residual)
%>\
${preamble}
% if not split:
${activation}
% endif
#define SUM1(v) (v)
% for w in (2, 4, 8, 16):
#define SUM${w}(v) SUM${w // 2}((v).lo + (v).hi)
% endfor

<%def name="step(load_name)">\
% for j in columns:
            const ${vf} y${j} = ${b.load(vec_k, j, load_name)};
% endfor
% for i in rows:
            const ${vf} x${i} = ${a.load(vec_k, i, load_name)};
% for j in columns:
            acc${i}_${j} = x${i} * y${j} + acc${i}_${j};
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_k}, ${local_n}, 1)))
void gemm_dot(
${common.parameters(c_type, split)})
{
    const int lane = (int)get_local_id(0);
    const int m0 = (int)get_group_id(0) * ${item_m};
    const int n0 = (int)get_global_id(1) * ${item_n};
${common.slice_of_item(split)}\
% for i in rows:
    __global const elem_t *a${i} = ${a.start(f"min(m0 + {i}, m - 1)")};
% endfor
% for j in columns:
    __global const elem_t *b${j} = ${b.start(f"min(n0 + {j}, n - 1)")};
% endfor
% for i in rows:
    ${vf} ${", ".join(f"acc{i}_{j} = 0.0f" for j in columns)};
% endfor

    int p = k_first + lane * ${vec_k};
% if vec_k > 1:
% if aligned:
    if (${aligned}) {
        for (; p + ${vec_k} <= k_last; p += ${local_k * vec_k}) {
${step("ALIGNED_LOAD")}\
        }
    }
% endif
% endif
    for (; p + ${vec_k} <= k_last; p += ${local_k * vec_k}) {
${step("LOAD")}\
    }
% for i, j in elements:
    float sum${i}_${j} = SUM${vec_k}(acc${i}_${j});
% endfor
% if vec_k > 1:
    p = k_first + (k_last - k_first) / ${vec_k} * ${vec_k} + lane;
    for (; p < k_last; p += ${local_k}) {
% for i, j in elements:
        sum${i}_${j} = ${a.load(1, i)} * ${b.load(1, j)} + sum${i}_${j};
% endfor
    }
% endif

% if local_k > 1:
    __local float sums[${local_n}][${len(elements)}][${local_k}];
    __local float (*mine)[${local_k}] = sums[get_local_id(1)];
% for e, (i, j) in enumerate(elements):
    mine[${e}][lane] = sum${i}_${j};
% endfor
    for (int half_way = ${local_k // 2}; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_way) {
            for (int e = 0; e < ${len(elements)}; ++e) {
                mine[e][lane] += mine[e][lane + half_way];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = lane; e < ${len(elements)}; e += ${local_k}) {
        const int row = m0 + e / ${item_n}, column = n0 + e % ${item_n};
        if (row < m && column < n) {
            const float value = mine[e][0]${plus_terms};
            ${"c[row * (long)ld_c + column] = value" if split else "STORE1(ACT(value), c + row * (long)ld_c + column)"};
        }
    }
% else:
% for i, j in elements:
    if (m0 + ${i} < m && n0 + ${j} < n) {
        const int row = m0 + ${i}, column = n0 + ${j};
        const float value = sum${i}_${j}${plus_terms};
        ${"c[row * (long)ld_c + column] = value" if split else "STORE1(ACT(value), c + row * (long)ld_c + column)"};
    }
% endfor
% endif
}
