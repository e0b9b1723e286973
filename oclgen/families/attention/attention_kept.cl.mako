<%doc>
Which scores dropout keeps, by the numbers of attention_philox.cl.mako.

vec         scores at once
counter     type of the counter: one for all of them, or one each
</%doc>
<%
    vf, vi, vu, vl = (f"{name}{vec}" for name in ("float", "int", "uint", "ulong"))
%>\
// 0 for dropped scores, 1 / (1 - p) for the others; `counter` is that of the first score of the head
${vf} kept(const ulong seed, const ${counter} counter, const ${vi} query, const ${vi} key, const int keys, const float chance)
{
    ${vu} drawn[4];
    philox(seed, counter + convert_${vl}(query & ~8) * (ulong)keys + convert_${vl}(key & ~8), drawn);
    const ${vi} far = (key & 8) != 0;
    const ${vu} number = select(select(drawn[0], drawn[1], far), select(drawn[2], drawn[3], far), (query & 8) != 0);
    const ${vf} uniform = convert_${vf}(number >> 8) * 0x1p-24f;
    return select((${vf})(0.0f), (${vf})(1.0f / chance), uniform < chance);
}
