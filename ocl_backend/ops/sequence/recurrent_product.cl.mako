<%doc>
out[r][q] = sum over k of in[r][k] * weight[k][q], for the `tile` rows of a work-group.

On GPUs neighbouring work-items have neighbouring columns, and `splits` of them share out a sum, so
that more loads are in flight. A processor's work-item is alone and has `across` columns at once,
whose weights lie in a block (`recurrent_turn`).

c         ops.sequence.recurrent_kernels.Product: columns, terms, tile, width, blocks, lanes, splits
weight    how weights are stored
</%doc>\
<%
    from ocl_backend.kernels import vectors
    N, K, R, V, S = c.columns, c.terms, c.tile, c.width, c.splits
    blocks, rows = range(c.blocks), range(R)
    def store(at, value):
        return f"out[{at}] = {value};" if V == 1 else f"vstore{V}({value}, 0, out + {at});"
%>\
typedef ${vectors.vector("float", V)} COLUMNS;

void product(
    const __local float *in, const __global ${weight.storage} *weight, __local float *out,
    __local float *parts)
{
    const int lane = get_local_id(0) % ${c.lanes}, split = get_local_id(0) / ${c.lanes};
% if c.is_wide:
    for (int first = 0; first < ${c.stride}; first += ${c.across}, weight += ${c.across * K}) {
% else:
    {
% endif
% for b in blocks:
% if c.is_wide:
        const int column${b} = first + ${b * V}, place${b} = ${b * V};
% else:
        const int column${b} = min(lane + ${b * c.lanes}, ${N - 1}), place${b} = column${b};
% endif
% for r in rows:
        COLUMNS sum_${b}_${r} = 0;
% endfor
% endfor
        const int end = ${f"min((split + 1) * {c.part}, {K})" if S > 1 else K};
        for (int k = ${f"split * {c.part}" if S > 1 else 0}; k < end; ++k) {
% for b in blocks:
            const COLUMNS weight_${b} = ${vectors.load(weight, "weight", f"k * {c.across} + place{b}", "1", V)};
% endfor
% for r in rows:
            const COLUMNS in_${r} = (COLUMNS)(in[${r * K} + k]);
% for b in blocks:
            sum_${b}_${r} = fma(weight_${b}, in_${r}, sum_${b}_${r});
% endfor
% endfor
        }
% if S > 1:
        if (split) {
% for b in blocks:
% for r in rows:
            parts[(split * ${c.blocks * R} + ${(b - c.blocks) * R + r}) * ${c.lanes} + lane] = sum_${b}_${r};
% endfor
% endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (split)
            return;
% for s in range(S - 1):
% for b in blocks:
% for r in rows:
        sum_${b}_${r} += parts[${((s * c.blocks + b) * R + r) * c.lanes} + lane];
% endfor
% endfor
% endfor
% endif
% for b in blocks:
% for r in rows:
        ${store(f"{r * c.stride} + column{b}", f"sum_{b}_{r}")}
% endfor
% endfor
    }
}
