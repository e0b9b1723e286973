<%doc>
The gradient of connectionist temporal classification for one step of one sample by one work-group:
grad_x[step, sample, class] is exp(lp) minus the likelihood of the class's states among all paths,
times the sample's gradient. A class without states has exp(-infinity + loss - lp) of them: 0 or NaN.

real        type of all but lengths and links
zero_infinity   a sample whose loss is infinite has no gradient
local_items work-items of a group

posterior and links are what ctc_states "bwd" writes; lengths is [batch, 3].
</%doc>
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void ctc_gradient(
    const int all_steps, const int batch, const int classes, const int width, const int blank,
    const long by_step, const long by_sample, const long by_class, const long by_grad,
    const __global ${real} *restrict grad, const long grad_start,
    const __global ${real} *restrict log_probs, const long log_probs_start,
    const __global long *restrict lengths, const long lengths_start,
    const __global ${real} *restrict loss, const long loss_start,
    const __global ${real} *restrict posterior, const long posterior_start,
    const __global int *restrict links, const long links_start,
    __global ${real} *restrict grad_x, const long grad_x_start)
{
    __local ${real} sums[${local_items}];
    const int item = get_local_id(0);
    const long group = get_group_id(0), step = group / batch, sample = group % batch;
    const int steps = lengths[lengths_start + 3 * sample];
    const int count = lengths[lengths_start + 3 * sample + 1];
    const ${real} nll = loss[loss_start + sample], scale = grad[grad_start + sample * by_grad];
    log_probs += log_probs_start + step * by_step + sample * by_sample;
    posterior += posterior_start + (sample * all_steps + step) * width;
    links += links_start + sample * (width - 1);
    grad_x += grad_x_start + group * classes;

    // Groups that have only zeros to write meet at the barriers, too: PoCL fails where one returns.
    const bool counts = step < steps${" && nll != INFINITY" if zero_infinity else ""};
    const int labels = counts ? count : 0, states = counts ? 2 * count + 1 : 0;
    for (int c = item; c < classes; c += ${local_items}) {
        const ${real} lp = log_probs[c * by_class];
        grad_x[c] = counts ? (exp(lp) - (nll - lp < INFINITY ? 0 : NAN)) * scale : 0;
    }
    ${real} sum = 0;
    for (int s = item; s < states; s += ${local_items})
        sum += s % 2 == 0 || links[s - 1] == -2 ? posterior[s] : 0;
    sums[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int i = item; i < labels; i += ${local_items}) {
        const int c = links[2 * i];
        if (c < 0)
            continue;
        ${real} of = 0;
        for (int k = i; k < labels; k = links[2 * k + 1])
            of += posterior[2 * k + 1];
        grad_x[c] = (exp(log_probs[c * by_class]) - of) * scale;
    }
    for (int half_way = ${local_items // 2}; half_way > 0; half_way /= 2) {
        if (item < half_way)
            sums[item] += sums[item + half_way];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0 && counts)
        grad_x[blank] = (exp(log_probs[blank * by_class]) - sums[0]) * scale;
}
