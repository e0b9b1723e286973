<%doc>
`gemm_register` where the lanes of a sub-group share A: C = act(op(A) op(B) + bias + residual),
batched, row-major, without local memory.

A sub-group computes item_m rows of lanes * item_n columns of C. The columns of a lane lie `lanes`
apart, so that a row of B is one read of neighbours. Each lane loads one element of a strip of A, which
has lanes / unroll_k rows and unroll_k steps of k, and the lanes hand its elements round. All lanes
go the same way, because they need each other: rows past the edge read the last row again, and are not stored.
A sub-group at the edge of n computes the last columns, of which another one stores some; where
there are fewer columns than it computes, those past the edge read 0.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, item_n      rows and columns of C per work-item; item_n is a multiple of vec_n
vec_n               words of a lane that one read of a row brings, and width of accumulators
local_m, local_n    work-items per group; local_n is a multiple of lanes
unroll_k            steps of the reduction that are written out per loop iteration; divides lanes
loop_m              blocks of item_m rows that a work-item computes one after the other
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
lanes, sub_group    work-items of a sub-group; its functions: see `oclgen.opencl.sub_groups`
trans_a, trans_b    A is stored [k, m], B is stored [n, k]
edge_m              item_m does not divide m
edge_n              "whole": lanes * item_n divides n; "last": n is larger; "few": it may be less
edge_k              unroll_k does not divide k
text                strips, rows, terms and stores: see `gemm_register_text`
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%!
    from oclgen.families.parts.expressions import lane
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    vf = vector(vec_n)
    rows, columns = range(item_m), range(0, item_n, vec_n)
    split = split_k > 1
    of_row, of_step = ("lane % {0}", "lane / {0}") if trans_a else ("lane / {1}", "lane % {1}")
    place = (text.strip_rows, unroll_k)
    guard = {"whole": "", "last": "n0 + {} >= own", "few": "n0 + {} < n"}[edge_n]
%>\
${preamble}
${sub_group}
% if not split:
${activation}
% endif

<%def name="step(u, guarded)">\
                {
% for j in columns:
                    const ${vf} b${j} = ${text.load_b(j, guarded)};
% endfor
% for i in rows:
                    const float a${i} = ${text.shared_a(i, u)};
% for j in columns:
                    acc${i}_${j} = a${i} * b${j} + acc${i}_${j};
% endfor
% endfor
                    pb += ${"1" if trans_b else "ld_b"};
                }
</%def>\
<%def name="reduction(guarded)">\
            int p = k_first;
            for (; p + ${unroll_k} <= k_last; p += ${unroll_k}) {
% for s in text.strips:
                const float strip${s} = LOAD1(pa${s});
                pa${s} += ${f"{unroll_k} * (long)ld_a" if trans_a else unroll_k};
% endfor
% for u in range(unroll_k):
${step(u, guarded)}\
% endfor
            }
% if edge_k:
            if (p < k_last) {
% for s in text.strips:
                const float strip${s} = p + step_of_lane < k_last ? LOAD1(pa${s}) : 0.0f;
% endfor
                for (int u = 0; u < k_last - p; ++u) {
${step("u", guarded)}\
                }
            }
% endif
</%def>\
__kernel SUB_GROUP __attribute__((reqd_work_group_size(${local_n}, ${local_m}, 1)))
void gemm_register(
${common.parameters(text.c_type, split)})
{
    const int lane = LANE;
    const int own = OF_FIRST_LANE((int)get_global_id(0) / ${lanes}) * ${lanes * item_n};
    if (own >= n) {
        return;
    }
    const int first = ${f"min(own, n - {lanes * item_n})" if edge_n == "last" else "own"};
    const int n0 = first + lane;
    // the lane's element of a strip
    const int row_of_lane = ${of_row.format(*place)}, step_of_lane = ${of_step.format(*place)};
${common.slice_of_item(split)}\
    b += ${"first * (long)ld_b + k_first" if trans_b else "k_first * (long)ld_b + first"};

    const int block0 = OF_FIRST_LANE((int)get_global_id(1)) * ${loop_m};
    for (int block = block0; block < block0 + ${loop_m}; ++block) {
        const int m0 = block * ${item_m};
        if (m0 >= m) {
            return;
        }
        __global const elem_t *pb = b;
% for s in text.strips:
        const int row${s} = min(m0 + ${s * text.strip_rows} + row_of_lane, m - 1);
        __global const elem_t *pa${s} = a + ${f"(k_first + step_of_lane) * (long)ld_a + row{s}" if trans_a else f"row{s} * (long)ld_a + k_first + step_of_lane"};
% endfor
% for i in rows:
        ${vf} ${", ".join(f"acc{i}_{j} = 0.0f" for j in columns)};
% endfor

% if edge_n == "few":
        if (first + ${lanes * item_n} > n) {
${reduction(True)}\
        } else
% endif
        {
${reduction(False)}\
        }

% for i in rows:
% if edge_m:
        if (m0 + ${i} < m)
% endif
        {
            const int row = m0 + ${i};
            __global ${text.c_type} *out = c + row * (long)ld_c + n0;
% for j in columns:
% for x in range(vec_n):
<% apart = (j + x) * lanes %>\
            ${f"if ({guard.format(apart)}) " if guard else ""}{
                const float value = ${lane(f"acc{i}_{j}", vec_n, x)}${text.bias_m}${text.plus_terms(1, apart)};
                ${text.store(1, "value", f"out + {apart}")}
            }
% endfor
% endfor
        }
% endfor
    }
}
