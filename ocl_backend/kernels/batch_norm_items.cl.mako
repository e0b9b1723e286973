<%doc>
What both kernels of batch normalisation share: arguments, and what they make of items. Defs for other
templates, no text of its own; the legend stands at the head of `batch_norm`. `counts` are the names
of sizes: ints, the last arguments. A launch has no doubles, so those come as their bits.
</%doc>
<%!
    from ocl_backend.kernels import vectors
    from ocl_backend.kernels.activations import activated, masked
    from ocl_backend.kernels.vectors import in_type
%>\
<%def name="arguments()">\
<% number, given = ("long", "_given") if dtype.value == "double" else ("float", "") %>\
    const __global ${dtype.storage} *restrict x, const long x_start,
% if direction == "fwd":
    __global ${dtype.storage} *restrict y, const long y_start,
    const __global ${dtype.storage} *restrict residual, const long residual_start,
% else:
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    const __global ${dtype.storage} *restrict result, const long result_start,
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start,
    __global ${param.storage} *restrict grad_weight, const long grad_weight_start,
    __global ${param.storage} *restrict grad_bias, const long grad_bias_start,
% endif
    const __global ${param.storage} *restrict weight, const long weight_start,
% if direction == "fwd":
    const __global ${param.storage} *restrict bias, const long bias_start,
% endif
    __global ${param.storage} *restrict running_mean, const long running_mean_start,
    __global ${param.storage} *restrict running_var, const long running_var_start,
    __global ${param.storage} *restrict save_mean, const long save_mean_start,
    __global ${param.storage} *restrict save_invstd, const long save_invstd_start,
    __global ${dtype.value} *restrict partial, const long partial_start,
    const ${number} eps${given}, const ${number} momentum${given}${"".join(f", const int {name}" for name in counts)})
</%def>
<%def name="starts()">\
% if dtype.value == "double":
    const double eps = as_double(eps_given), momentum = as_double(momentum_given);
% endif
    x += x_start;
% if direction == "fwd":
    y += y_start;
    residual += residual_start;
% else:
    grad += grad_start;
    result += result_start;
    grad_x += grad_x_start;
% endif
    weight += weight_start;
    partial += partial_start;
    running_mean += running_mean_start;
    running_var += running_var_start;
    save_mean += save_mean_start;
    save_invstd += save_invstd_start;
</%def>
<%def name="load_grad(w)">\
<% real = dtype.value; kind = vectors.vector(real, w) %>\
% if mask == "none":
            const ${kind} g = ${vectors.load(dtype, "grad", "at", "1", w, aligned)};
% else:
            const ${kind} given = ${vectors.load(dtype, "grad", "at", "1", w, aligned)}, above = ${vectors.load(dtype, "result", "at", "1", w, aligned)};
            const ${kind} g = ${in_type(masked(mask, "given", "above"), real, w)};
% endif
</%def>
<%def name="write_y(x, w)">\
<% real = dtype.value; kind = vectors.vector(real, w) %>\
            const ${kind} normal = ${x} * scale + shift${" + " + vectors.load(dtype, "residual", "at", "1", w, aligned) if residual else ""};
            const ${kind} v = ${in_type(activated(activation, "normal"), real, w)};
% for line in vectors.store(dtype, "y", "at", "1", "v", w, aligned):
            ${line}
% endfor
</%def>
<%def name="write_grad_x(w)">\
<% kind = vectors.vector(dtype.value, w) %>\
${load_grad(w)}\
% if trains:
            const ${kind} d = ${vectors.load(dtype, "x", "at", "1", w, aligned)} - mean;
            const ${kind} v = (g - grad_mean - d * slope) * scale;
% else:
            const ${kind} v = g * scale;
% endif
% for line in vectors.store(dtype, "grad_x", "at", "1", "v", w, aligned):
            ${line}
% endfor
</%def>
