<%doc>
Independent chains of multiply-adds in registers: what a device can compute when nothing waits.

vec      width of each chain's vector
chains   chains per work-item; enough of them hide the latency of one multiply-add
</%doc>
<%
    vf = "float" if vec == 1 else f"float{vec}"
    chain = range(chains)
%>\
__kernel void peak_fma(__global float *restrict out, const long offset_out, const int steps)
{
    const ${vf} x = (${vf})(0.999f);
    const ${vf} y = (${vf})(0.001f);
% for c in chain:
    ${vf} a${c} = (${vf})(get_global_id(0) * 1e-6f + ${c}.0f);
% endfor
    for (int i = 0; i < steps; ++i) {
% for c in chain:
        a${c} = a${c} * x + y;
% endfor
    }
    const ${vf} sum = ${" + ".join(f"a{c}" for c in chain)};
    out[offset_out + get_global_id(0)] = ${"sum" if vec == 1 else " + ".join(f"sum.s{s:x}" for s in range(vec))};
}
