<%doc>
What kernels of CPUs share that store images in planes: defs for other templates, no text of its own.

vec                lanes of a vector, which are channels
store_step         distance of neighbouring results in the output
bias, residual     what is added before the activation, ACT
</%doc>
<%!
    from oclgen.families.parts.expressions import chunks, lanes_of, store_result
    from oclgen.render import vector
%>\
<%def name="store(count)">\
<% vf = vector(vec) %>\
// Stores ${count} results of up to ${vec} channels, which come as rows of lanes.
void store${count}(
    ${vf} rows[${vec}], __global elem_t *out,
% if bias:
    __global const elem_t *bias,
% endif
% if residual:
    __global const elem_t *residual,
% endif
    int channels)
{
    transpose(rows);
    for (int i = 0; i < min(channels, ${vec}); ++i) {
        const ${vf} value = ${"" if residual else "ACT"}(rows[i]${" + LOAD1(bias + i)" if bias else ""});
% if store_step == 1:
% for start, width in chunks(count, vec):
<% some = lanes_of("value", vec, start, width) %>\
        ${store_result(width, some, f"out + i * WRITTEN_PLANE + {start}", residual)}
% endfor
% else:
% for x in range(count):
<% place = f"out + i * WRITTEN_PLANE + {x * store_step}" %>\
        ${store_result(1, lanes_of("value", vec, x, 1), place, residual)}
% endfor
% endif
    }
}

</%def>
