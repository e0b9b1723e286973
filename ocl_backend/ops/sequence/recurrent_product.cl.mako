<%doc>
out[r][q] = sum over k of in[r][k] * weight[k][q], for the `tile` rows of a work-group.

On GPUs neighbouring work-items have neighbouring vectors of columns, and `splits` of them share out
a sum. Each loads the weights of `terms_at_once` before it multiplies, so that more loads are in
flight. A processor's work-item is alone and has `across` columns at once, whose weights lie in a
block (`recurrent_turn`).

c         ops.sequence.recurrent_kernels.Product: columns, terms, tile, width, blocks, lanes, splits
weight    how weights are stored
</%doc>\
<%
    from ocl_backend.kernels import vectors
    K, R, V, S, at_once = c.terms, c.tile, c.width, c.splits, c.terms_at_once
    blocks, rows = range(c.blocks), range(R)
    def store(name, at, value):
        return f"{name}[{at}] = {value};" if V == 1 else f"vstore{V}({value}, 0, {name} + {at});"
    def local_load(name, at):
        return f"{name}[{at}]" if V == 1 else f"vload{V}(0, {name} + {at})"
    def weight_of(k, place):
        # a processor's loads need no alignment, a GPU's rows have it
        return vectors.load(weight, "weight", f"{k} * {c.across} + {place}", "1", V, not c.is_wide)
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
        const int column${b} = min((lane + ${b * c.lanes}) * ${V}, ${c.across - V}), place${b} = column${b};
% endif
% for r in rows:
        COLUMNS sum_${b}_${r} = 0;
% endfor
% endfor
        const int end = ${f"min((split + 1) * {c.part}, {K})" if S > 1 else K};
        int k = ${f"split * {c.part}" if S > 1 else 0};
% if at_once > 1:
        for (; k + ${at_once} <= end; k += ${at_once}) {
${terms(at_once)}\
        }
% endif
        for (; k < end; ++k) {
${terms(1)}\
        }
% if S > 1:
        if (split) {
% for b in blocks:
% for r in rows:
            ${store("parts", f"((split * {c.blocks * R} + {(b - c.blocks) * R + r}) * {c.lanes} + lane) * {V}", f"sum_{b}_{r}")}
% endfor
% endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (split)
            return;
% for s in range(S - 1):
% for b in blocks:
% for r in rows:
        sum_${b}_${r} += ${local_load("parts", f"({((s * c.blocks + b) * R + r) * c.lanes} + lane) * {V}")};
% endfor
% endfor
% endfor
% endif
% for b in blocks:
% for r in rows:
        ${store("out", f"{r * c.stride} + column{b}", f"sum_{b}_{r}")}
% endfor
% endfor
    }
}
<%def name="terms(count)">\
% for u in range(count):
% for b in blocks:
            const COLUMNS weight_${b}_${u} = ${weight_of(f"(k + {u})" if u else "k", f"place{b}")};
% endfor
% endfor
% for u in range(count):
% for r in rows:
            const COLUMNS in_${r}_${u} = (COLUMNS)(in[${r * K + u} + k]);
% for b in blocks:
            sum_${b}_${r} = fma(weight_${b}_${u}, in_${r}_${u}, sum_${b}_${r});
% endfor
% endfor
% endfor
</%def>\
