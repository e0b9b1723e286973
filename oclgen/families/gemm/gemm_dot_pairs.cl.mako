<%doc>
GEMM in bf16 by inner products of pairs: C = act(A Bᵀ + bias + residual), batched, row-major, both
operands along k.

A work-item computes item_m x item_n of C. Each result has a vector of 16 sums, to which an instruction
adds the products of 32 steps of k of a row of A and a row of the stored B; at the end lanes are added,
of 16 vectors at a time. Nothing is packed or turned. The last steps are read from 32 before the end of
k, and those that were added already are zero. Rows past the edge read the last one again.

activation, bias    epilogue; bias is "none", "m" or "n"
residual            a matrix that lies as C does is added
item_m, item_n      rows and columns of C per work-item
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
edge_m, edge_n      item_m does not divide m, item_n does not divide n
edge_k              32 does not divide k
text                terms and stores: see `gemm_register_text`
preamble, dot       LOAD and STORE; the instruction
</%doc>
<%!
    from oclgen.families.gemm.gemm_dot_pairs_text import added, groups
    from oclgen.families.parts.expressions import lanes_of
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    rows, columns = range(item_m), range(item_n)
    # the operand of fewer rows stays in registers during a step
    kept, passing = ("b", "a") if item_n <= item_m else ("a", "b")
    counts = {"a": rows, "b": columns}
    def lanes(one, two):
        i, j = (two, one) if kept == "b" else (one, two)
        return f"lanes{i}_{j}"
%>\
${preamble}
${dot}
% if not split:
${activation}
% endif
#define PAIRS(p) as_uint16(vload16(0, (__global const uint *)(p)))

% if edge_n:
${common.store_halves(item_n)}\
% endif
<%def name="step(at, mask)">\
% for i in counts[kept]:
            const uint16 y${i} = PAIRS(${kept}${i} + ${at})${mask};
% endfor
% for j in counts[passing]:
            const uint16 x${j} = PAIRS(${passing}${j} + ${at})${mask};
% for i in counts[kept]:
            DOT_PAIRS(${lanes(i, j)}, x${j}, y${i});
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_dot_pairs(
${common.parameters(c_type, split)})
{
    const int m0 = (int)get_global_id(0) * ${item_m};
    const int n0 = (int)get_global_id(1) * ${item_n};
${common.slice_of_item(split)}\
% for i in rows:
    __global const elem_t *a${i} = a + ${f"min(m0 + {i}, m - 1)" if edge_m else f"(m0 + {i})"} * (long)ld_a;
% endfor
% for j in columns:
    __global const elem_t *b${j} = b + ${f"min(n0 + {j}, n - 1)" if edge_n else f"(n0 + {j})"} * (long)ld_b;
% endfor
% for i in rows:
    float16 ${", ".join(f"lanes{i}_{j} = 0.0f" for j in columns)};
% endfor

    int p = k_first;
    for (; p + 32 <= k_last; p += 32) {
${step("p", "")}\
    }
% if edge_k:
    if (p < k_last) {
        const int start = k_last - 32;
        const short16 at = (short16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), added = (short16)(p - start);
        const uint16 rest = (uint16)(as_uint8(at >= added), as_uint8((short16)(at + (short16)16) >= added));
        {
${step("start", " & rest")}\
        }
    }
% endif

% for group, places in enumerate(groups(item_m, item_n)):
% for name, value in added(group, [f"lanes{i}_{j}" for i, j in places]):
    const float16 ${name} = ${value};
% endfor
% for at, (i, j) in enumerate(places):
% if j == 0:
    const ${vector(item_n)} acc${i}_0 = ${lanes_of(name, 16, at, item_n)};
% endif
% endfor
% endfor
    {
${common.store_rows(rows, (0,), item_n)}\
    }
}
