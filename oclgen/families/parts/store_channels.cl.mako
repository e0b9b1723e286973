<%doc>
Stores neighbouring channels of a result, whose pixels lie one behind the other (channels_last).

vec              lanes of a vector
bias, residual   what is added before the activation, ACT
</%doc>
<%!
    from oclgen.families.parts.expressions import write_item
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
    float lanes[${vec}];
    ${write_item(vec, "value", "lanes[0]")};
    for (int i = 0; i < channels; ++i) {
        STORE1(ACT(lanes[i]${added(1, " + i")}), out + i);
    }
}
