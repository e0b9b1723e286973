<%doc>
Loads a vector at the end of a row.

vec         its lanes
</%doc>
<% vf = f"float{vec}" %>\
${vf} load_part(__global const elem_t *p, const int count)
{
    if (count >= ${vec}) {
        return LOAD${vec}(p);
    }
    float part[${vec}];
    for (int i = 0; i < ${vec}; ++i) {
        part[i] = i < count ? LOAD1(p + i) : 0.0f;
    }
    return vload${vec}(0, part);
}
