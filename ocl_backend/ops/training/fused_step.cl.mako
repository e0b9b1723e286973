<%doc>
One step of an optimiser over several tensors at once: a small network would otherwise spend its
time on launches.

method      "sgd", "adam", "adamw" (torch.optim's formulas)
roles       buffers each tensor has, in order: p, and as the method wants grad, m (momentum or first
            moment), v (second moment), v_max (amsgrad), step (a float)
blocks      work-groups of each tensor
sizes       items of each tensor
dtype       DType of all but step
block       items per work-group
local_items work-items per group
width       items handled at once
weight_decay, momentum, nesterov, first    what of the formula there is; first: no momentum yet
maximize    the gradient's sign is turned
unscales    there is grad_scale, which divides the gradient in place, as torch's fused steps do
skips       there is found_inf, and nothing happens if it is not zero. It comes without grad_scale
            if the scaler unscaled the gradients before the step, to clip them

`lr`, `decay`, `eps`, `beta1`, `beta2` are launch arguments, with their complements 1 - beta and
logarithms, since 1 - beta^step cancels in fp32: it is computed as -expm1(step * log(beta)).
</%doc>
<%!
    from itertools import accumulate

    from ocl_backend.kernels import vectors

    NUMBERS = "lr", "decay", "eps", "beta1", "rest1", "log_beta1", "beta2", "rest2", "log_beta2"
%>\
<%
    real = dtype.value
    tensors = [role for role in roles if role != "step"]
    ends = list(accumulate(blocks))
    def kind(role):
        return "float" if role == "step" else dtype.storage
%>\
${vectors.prelude(dtype, width)}\

<%def name="advance(w)">\
<%
    T = vectors.vector(real, w)
    load = lambda name: vectors.load(dtype, name, "i", "1", w)
    store = lambda name: vectors.store(dtype, name, "i", "1", f"new_{name}", w)
%>\
            ${T} new_p = ${load("p")};
% if unscales:
            const ${T} new_grad = ${load("grad")} * unscale;
% endif
            ${T} g = ${"-" if maximize else ""}${"new_grad" if unscales else load("grad")};
% if method == "adamw":
            new_p -= new_p * (${real})(lr * decay);
% elif weight_decay:
            g += new_p * (${real})decay;
% endif
% if method == "sgd":
% if momentum:
            const ${T} new_m = ${"g" if first else load("m") + f" * ({real})beta1 + g * ({real})rest1"};
            g ${"+= new_m * (" + real + ")beta1" if nesterov else "= new_m"};
% endif
            new_p -= g * (${real})lr;
% else:
            const ${T} old_m = ${load("m")};
            const ${T} new_m = old_m + (g - old_m) * (${real})rest1;
            const ${T} new_v = ${load("v")} * (${real})beta2 + g * g * (${real})rest2;
% if "v_max" in roles:
            const ${T} new_v_max = fmax(${load("v_max")}, new_v);
% endif
            new_p -= rate * new_m / (sqrt(${"new_v_max" if "v_max" in roles else "new_v"}) * spread + (${real})eps);
% endif
% for name in tensors:
% if name != "grad" or unscales:
% for line in store(name):
            ${line}
% endfor
% endif
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void fused_step(
% for t in range(len(sizes)):
% for role in roles:
    __global ${kind(role)} *${role}_${t}, const long ${role}_${t}_start,
% endfor
% endfor
% if unscales:
    const __global float *grad_scale, const long grad_scale_start,
% endif
% if skips:
    const __global float *found_inf, const long found_inf_start,
% endif
% if real == "double":
    ${", ".join(f"const long {name}_bits" for name in NUMBERS)})
{
% for name in NUMBERS:
    const double ${name} = as_double(${name}_bits);
% endfor
% else:
    const float lr, const float decay, const float eps,
    const float beta1, const float rest1, const float log_beta1,
    const float beta2, const float rest2, const float log_beta2)
{
% endif
% if skips:
    if (found_inf[found_inf_start] != 0) {
        return;
    }
% endif
% if unscales:
    const ${real} unscale = 1 / grad_scale[grad_scale_start];
% endif
    const int group = get_group_id(0);
% for role in roles:
    __global ${kind(role)} *${role};
% endfor
    long first, size;
% for t, size in enumerate(sizes):
    ${"} else " if t else ""}${f"if (group < {ends[t]}) " if t + 1 < len(sizes) else ""}{
        first = (long)(group - ${ends[t] - blocks[t]}) * ${block};
        size = ${size};
% for role in roles:
        ${role} = ${role}_${t} + ${role}_${t}_start;
% endfor
% endfor
    }
% if method in ("adam", "adamw"):
    const ${real} rate = lr / -expm1(*step * log_beta1);
    const ${real} spread = rsqrt(-expm1(*step * log_beta2));
% endif
    const long end = min(first + ${block}, size);
    for (long i = first + get_local_id(0) * ${width}; i < end; i += ${local_items * width}) {
% if width > 1:
        if (i + ${width} <= end) {
${advance(width)}\
            continue;
        }
        for (; i < end; ++i) {
${advance(1)}\
        }
% else:
        {
${advance(1)}\
        }
% endif
    }
}
