<%doc>
Stores a tap of neighbouring input channels, whose weights lie w_depth items apart.

vec    channels, the lanes of a vector
</%doc>
<%!
    from oclgen.render import vector
%>\
static void store_depths(const ${vector(vec)} value, __global elem_t *out, const long w_depth)
{
    if (w_depth == 1) {
        STORE${vec}(value, out);
        return;
    }
    float lanes[${vec}];
    vstore${vec}(value, 0, lanes);
    for (int i = 0; i < ${vec}; ++i) {
        STORE1(lanes[i], out + i * w_depth);
    }
}
