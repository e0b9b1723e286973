<%doc>
Stores neighbouring channels of a result, whose pixels lie one behind the other (channels_last).

vec              lanes of a vector
rest             channels of the last vector, if it has fewer than lanes
bias, residual   what is added before the activation, ACT
</%doc>
<%!
    from oclgen.families.parts.expressions import chunks, lanes_of, plus
    from oclgen.render import vector
%>\
<%
    def added(width, behind):
        terms = ["bias"] * bias + ["residual"] * residual
        return "".join(f" + LOAD{width}({term}{behind})" for term in terms)
%>\
/* Stores a vector of results, or as many of its lanes as there are `channels`. */
static inline void store_channels(
    ${vector(vec)} value, __global elem_t *out,
% if bias:
    __global const elem_t *bias,
% endif
% if residual:
    __global const elem_t *residual,
% endif
    const int channels)
{
    if (channels >= ${vec}) {
        STORE${vec}(ACT(value${added(vec, "")}), out);
        return;
    }
% for start, width in chunks(rest, vec):
<% lanes = lanes_of("value", vec, start, width) %>\
    STORE${width}(ACT(${lanes}${added(width, plus(start))}), out${plus(start)});
% endfor
}
