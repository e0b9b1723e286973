<%doc>
Register-tiled GEMM without local memory: C = act(op(A) op(B) + bias), batched, row-major.

One work-item computes item_m x item_n of C in private memory; a column of A is broadcast against
vectors of B. Rows past the edge read the last row again and are not stored; a column block that
crosses the edge takes a path of single elements.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, item_n      rows and columns of C per work-item; item_n is a multiple of vec_n
vec_n               width of loads, stores and accumulators along n
local_m, local_n    work-items per group
unroll_k            steps of the reduction that are written out per loop iteration
trans_a, trans_b    A is stored [k, m], B is stored [n, k]
edge_m, edge_n      item_m does not divide m, item_n does not divide n
edge_k              unroll_k does not divide k
bias                "none", "m" or "n"
</%doc>
<%
    vf = "float" if vec_n == 1 else f"float{vec_n}"
    vectors = range(item_n // vec_n)
    rows = range(item_m)
    def a_at(i, k):
        return f"{k} * ld_a + row{i}" if trans_a else f"row{i} * ld_a + {k}"
    def b_at(j, k):
        return f"(n0 + {j}) * ld_b + {k}" if trans_b else f"({k}) * ld_b + n0 + {j}"
    def lanes(texts):
        texts = list(texts)
        return texts[0] if len(texts) == 1 else f"({vf})({', '.join(texts)})"
    def lane(c, j):
        return c if vec_n == 1 else f"{c}.s{j:x}"
%>\
${preamble}
${activation}

<%def name="step(k, guarded)">\
% for j in vectors:
% if guarded or trans_b:
            const ${vf} b${j} = ${lanes(f"LOAD1(b + {b_at(f'min({j * vec_n + s}, n - 1 - n0)' if guarded else j * vec_n + s, k)})" for s in range(vec_n))};
% else:
            const ${vf} b${j} = LOAD${vec_n}(b + ${b_at(j * vec_n, k)});
% endif
% endfor
% for i in rows:
            const float a${i} = LOAD1(a + ${a_at(i, k)});
% for j in vectors:
            acc${i}_${j} = mad((${vf})(a${i}), b${j}, acc${i}_${j});
% endfor
% endfor
</%def>\
<%def name="reduction(guarded)">\
        int p = 0;
        for (; p + ${unroll_k} <= k; p += ${unroll_k}) {
% for u in range(unroll_k):
          {
${step(f"(p + {u})", guarded)}\
          }
% endfor
        }
% if edge_k:
        for (; p < k; ++p) {
${step("p", guarded)}\
        }
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_m}, ${local_n}, 1)))
void gemm_register(
    __global const elem_t *restrict a, const long offset_a,
    __global const elem_t *restrict b, const long offset_b,
    __global elem_t *restrict c, const long offset_c,
% if bias != "none":
    __global const elem_t *restrict bias, const long offset_bias,
% endif
    const int m, const int n, const int k,
    const int ld_a, const int ld_b, const int ld_c,
    const long batch_a, const long batch_b, const long batch_c)
{
    const int m0 = (int)get_global_id(0) * ${item_m};
    const int n0 = (int)get_global_id(1) * ${item_n};
    if (m0 >= m || n0 >= n) {
        return;
    }
    a += offset_a + (long)get_global_id(2) * batch_a;
    b += offset_b + (long)get_global_id(2) * batch_b;
    c += offset_c + (long)get_global_id(2) * batch_c;
% for i in rows:
    const int row${i} = ${f"min(m0 + {i}, m - 1)" if edge_m else f"m0 + {i}"};
% endfor
% for i in rows:
% for j in vectors:
    ${vf} acc${i}_${j} = 0.0f;
% endfor
% endfor

% if edge_n:
    if (n0 + ${item_n} <= n)
% endif
    {
${reduction(False)}\
    }
% if edge_n:
    else {
${reduction(True)}\
    }
% endif

% for i in rows:
% if edge_m:
    if (m0 + ${i} < m)
% endif
    {
        __global elem_t *out = c + (long)row${i} * ld_c + n0;
% if edge_n:
        if (n0 + ${item_n} > n) {
% for j in vectors:
% for s in range(vec_n):
            if (n0 + ${j * vec_n + s} < n) {
                const float value = ${lane(f"acc{i}_{j}", s)}${{"none": "", "m": f" + LOAD1(bias + offset_bias + row{i})", "n": f" + LOAD1(bias + offset_bias + n0 + {j * vec_n + s})"}[bias]};
                STORE1(ACT(value), out + ${j * vec_n + s});
            }
% endfor
% endfor
        } else
% endif
        {
% for j in vectors:
            const ${vf} value${j} = acc${i}_${j}${{"none": "", "m": f" + LOAD1(bias + offset_bias + row{i})", "n": f" + LOAD{vec_n}(bias + offset_bias + n0 + {j * vec_n})"}[bias]};
            STORE${vec_n}(ACT(value${j}), out + ${j * vec_n});
% endfor
        }
    }
% endfor
}
