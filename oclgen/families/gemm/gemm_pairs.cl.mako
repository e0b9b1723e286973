<%doc>
GEMM in bf16 by dot products of pairs: C = act(op(A) op(B) + bias + residual), batched,
row-major.

One work-item computes item_m x item_n of C in private memory, two steps of k at a time: a pair of
A's row is broadcast against vectors of pairs of B's columns. Packed operands lie as the kernel
reads them, padded with zeros to whole panels and an even k. Rows past the edge of an operand that
is not packed read the last row again and are not stored.

activation, bias    epilogue; bias is "none", "m" or "n"
residual            a matrix that lies as C does is added
item_m, item_n      rows and columns of C per work-item; item_n is a multiple of 16
loop_m              blocks of item_m rows that a work-item computes one after the other, so that
                    its columns of B stay in the nearest cache
order               "m" or "n": the dimension of C along which work-groups follow each other
pack_a, pack_b      the operand comes as panels of pairs, [m / item_m][k / 2][item_m][2] and
                    [n / item_n][k / 2][item_n][2]; else as [m, k] and [k, n]
split_k             slices of k; each writes a plane of partial sums, which another kernel adds.
                    Slices run one behind the other: this is also the blocking of k for caches
edge_m, edge_n      item_m does not divide m, item_n does not divide n
edge_k              k is odd
ahead               rows of A, which is not packed, are asked for a block ahead
text                loads, terms and stores: see `gemm_register_text`
preamble, dot       LOAD and STORE; the instruction
</%doc>
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    rows, columns = range(item_m), range(0, item_n, 16)
    dim_m, dim_n = (0, 1) if order == "m" else (1, 0)
    split = split_k > 1
    c_type = "float" if split else "elem_t"
%>\
${preamble}
${dot}
% if not split:
${activation}
% endif

% if ahead:
<%include file="ask_for.cl.mako"/>\
% endif
% if edge_n:
${common.store_halves(16)}\
% endif
<%def name="step(single)">\
% for j in columns:
            const uint16 b${j} = ${text.load_b(j, single)};
% endfor
% for i in rows:
            const uint16 a${i} = (uint16)(as_uint(${text.load_a(i, single)}));
% for j in columns:
            DOT_PAIRS(acc${i}_${j}, a${i}, b${j});
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_pairs(
${common.parameters(c_type, split)})
{
    const int n0 = (int)get_global_id(${dim_n}) * ${item_n};
${common.slice_of_item(split)}\
% if pack_b:
    b += get_global_id(${dim_n}) * (long)ld_b + k_first * (long)${item_n};
% else:
    b += k_first * (long)ld_b + n0;
% endif

    const int block0 = (int)get_global_id(${dim_m}) * ${loop_m};
    for (int block = block0; block < block0 + ${loop_m}; ++block) {
        const int m0 = block * ${item_m};
        if (m0 >= m) {
            return;
        }
        __global const elem_t *pb = b;
% if pack_a:
        __global const elem_t *pa = a + block * (long)ld_a + k_first * (long)${item_m};
% else:
% for i in rows:
        __global const elem_t *pa${i} = a + ${f"min(m0 + {i}, m - 1)" if edge_m else f"(m0 + {i})"} * (long)ld_a + k_first;
% endfor
% endif
% for i in rows:
        float16 ${", ".join(f"acc{i}_{j} = 0.0f" for j in columns)};
% endfor

        int p = k_first;
        for (; p < k_last${"" if pack_a and pack_b else " - 1"}; p += 2) {
% if ahead:
            ASK_FOR(pa0 + ${item_m} * (long)ld_a + (p - k_first) * ${item_m - 1}, 3);
% endif
${step(False)}\
% if pack_a:
            pa += ${2 * item_m};
% else:
            ${" ".join(f"pa{i} += 2;" for i in rows)}
% endif
            pb += ${2 * item_n if pack_b else "2 * (long)ld_b"};
        }
% if edge_k and not (pack_a and pack_b):
        if (p < k_last) {
${step(True)}\
        }
% endif

${common.store_rows(rows, columns, 16)}\
    }
}
