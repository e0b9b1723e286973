<%doc>
Batch normalisation of x [batch, channels, inner], forward or backward, one channel per work-group.

A pass over the channel's items sums two things, a second one writes the result. Either a group
makes both passes over the whole channel, which stays in cache (CPUs) or in registers (GPUs, small
channels, forward), or one launch sums chunks of the batch into `partial` and the next one combines them and
writes (GPUs).

direction   "fwd": sums are the mean and the squared distances from it, in two passes over what is
            near, else in one: each lane sums distances from its first item, and lanes and chunks are
            combined after Chan, Golub and LeVeque 1979; "bwd": of grad and grad * (x - mean)
sums        this launch sums
writes      this launch writes the result
trains      statistics are of this batch; otherwise they are the running ones and only read
tracks      the running statistics are updated
affine      there are weights (and, forward, biases)
residual    forward: a tensor of y's shape is added before the activation
activation  forward: name of what y is passed through
mask        backward: name of the activation whose `result` masks the gradient first
dtype       DType of x, y and the gradients of x
param       DType of weights, biases and all statistics
local_items work-items per group, a power of two; 0: as many as the launch has, up to `most`
width       items read at once; where a group has several work-items it divides inner
aligned     x and all of its size begin where any access of a GPU may
kept        forward: vectors that each work-item has registers for between the passes; 0: none

Arguments are batch, channels and inner, the sizes of x, which is dense; chunk, the batch items per
work-group, chunks = batch / chunk, rounded up; and inner_factor, inner_shift, by which work-items of a
GPU divide by inner.
</%doc>
<%namespace name="items" file="batch_norm_items.cl.mako"/>\
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    real = dtype.value
    fwd = direction == "fwd"
    saved = fwd and trains
    def real_of(w):
        return vectors.vector(real, w)
    several = local_items != 1
    local = local_items or "(int)get_local_size(0)"
    once = fwd and several and not kept
    def load(name, w):
        return vectors.load(dtype, name, "at", "1", w, aligned)
    def x_of(w):
        return "kept_x[k]" if kept else load("x", w)
    def sum_lanes(name, w):
        return " + ".join(f"{name}.s{i:x}" for i in range(w)) if w > 1 else name
%>\
${vectors.prelude(dtype, width)}\
${param.prelude if param is not dtype else ""}\
#define COUNT (batch * inner)
% if several:
#define ROW(i) ((int)(mul_hi(2u * (uint)(i), (uint)inner_factor) >> inner_shift))
% endif

% if several and sums:
${real} group_sum(${real} value, __local ${real} *scratch)
{
    const int item = get_local_id(0);
    scratch[item] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_way = ${local_items // 2 or f"{local} / 2"}; half_way > 0; half_way /= 2) {
        if (item < half_way) {
            scratch[item] += scratch[item + half_way];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    value = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return value;
}

% endif
<%def name="each(body)">\
% if kept:
    #pragma unroll
    for (int k = 0; k < ${kept}; ++k) {
        const int i = (k * ${local} + get_local_id(0)) * ${width};
        if (i < COUNT) {
            const long at = first + ROW(i) * between + i;
${body(width)}\
        }
    }
% elif several:
    #pragma unroll 4
    for (int i = get_local_id(0) * ${width}; i < items * inner; i += ${local_items * width or f"{local} * {width}"}) {
        const long at = first + ROW(i) * between + i;
${body(width)}\
    }
% else:
    for (int n = 0; n < items; ++n) {
        const long row = first + n * image, end = row + inner;
        long at = row;
% if width > 1:
        for (; at <= end - ${width}; at += ${width}) {
${body(width)}\
        }
% endif
        for (; at < end; ++at) {
${body(1)}\
        }
    }
% endif
</%def>\
<%def name="add_x(w)">\
% if kept:
            kept_x[k] = ${load("x", w)};
% endif
            sum${w} += ${x_of(w)};
</%def>\
<%def name="add_distance(w)">\
            const ${real_of(w)} v = ${load("x", w)};
            near = taken == 0 ? v : near;
            const ${real_of(w)} d = v - near;
            sum${w} += d;
            squares${w} += d * d;
            taken += 1;
</%def>\
<%def name="add_square(w)">\
            const ${real_of(w)} d = ${x_of(w)} - mean;
            sum${w} += d * d;
</%def>\
<%def name="add_grad(w)">\
${items.load_grad(w)}\
            const ${real_of(w)} d = ${load("x", w)} - mean;
            sum${w} += g;
            dot${w} += g * d;
</%def>\
<%def name="write_y(w)">\
${items.write_y(x_of(w), w)}\
</%def>\
<%def name="start(*names)">\
% for name in names:
    ${real_of(width)} ${name}${width} = 0;
% if width > 1:
    ${real} ${name}1 = 0;
% endif
% endfor
</%def>\
<%def name="finish(name)">\
% if width > 1:
    ${name}1 += ${sum_lanes(f"{name}{width}", width)};
% endif
% if several:
    ${name}1 = group_sum(${name}1, scratch);
% endif
</%def>\
__kernel ${f"__attribute__((reqd_work_group_size({local_items}, 1, 1)))" if local_items else ""}
void batch_norm_${direction}(
${items.arguments()}\
{
% if several and sums:
    __local ${real} scratch[${local_items or most}];
% endif
    const int c = (int)get_group_id(0) % channels;
    const int part = (int)get_group_id(0) / channels;
    const int items = min(chunk, batch - part * chunk);
    const long image = (long)channels * inner;
% if several:
    const long between = image - inner;
% endif
    const long first = part * chunk * image + (long)c * inner;
${items.starts()}\

% if not saved:
% if trains:
    const ${real} mean = ${param.load("save_mean", "c")};
    const ${real} invstd = ${param.load("save_invstd", "c")};
% else:
    const ${real} mean = ${param.load("running_mean", "c")};
    const ${real} invstd = rsqrt((${real})${param.load("running_var", "c")} + eps);
% endif
% endif
% if kept:
    ${real_of(width)} kept_x[${kept}];
% endif
% if sums and once:
    ${real_of(width)} near = 0, sum${width} = 0, squares${width} = 0;
    ${real} taken = 0;
${each(add_distance)}\
    const ${real} count = max(taken, (${real})1);
    const ${real_of(width)} own = near + sum${width} / count;
    const ${real_of(width)} own_squares = squares${width} - sum${width} * sum${width} / count;
    const ${real} mean = group_sum(taken * (${sum_lanes("own", width)}), scratch) / (items * inner);
    const ${real_of(width)} away = own - mean;
    const ${real_of(width)} all_squares = own_squares + taken * away * away;
    const ${real} squares = group_sum(${sum_lanes("all_squares", width)}, scratch);
% elif sums and fwd:
${start("sum")}\
${each(add_x)}\
${finish("sum")}\
    const ${real} mean = sum1 / (items * inner);
    ${real} squares;
    {
${start("sum")}\
${each(add_square)}\
${finish("sum")}\
        squares = sum1;
    }
% elif sums:
${start("sum", "dot")}\
${each(add_grad)}\
${finish("sum")}\
${finish("dot")}\
% endif
% if sums and not writes:
    if (get_local_id(0) == 0) {
        partial[2 * get_group_id(0)] = ${"mean" if fwd else "sum1"};
        partial[2 * get_group_id(0) + 1] = ${"squares" if fwd else "dot1"};
    }
% endif
% if writes and not sums:
% if saved:
    const int chunks = (batch + chunk - 1) / chunk;
    ${real} mean = 0, squares = 0;
    for (int p = 0; p < chunks; ++p) {
        mean += partial[2 * (p * channels + c)] * min(chunk, batch - p * chunk);
    }
    mean /= batch;
    for (int p = 0; p < chunks; ++p) {
        const ${real} d = partial[2 * (p * channels + c)] - mean;
        squares += partial[2 * (p * channels + c) + 1]
            + d * d * (min(chunk, batch - p * chunk) * inner);
    }
% elif not fwd:
    const int chunks = (batch + chunk - 1) / chunk;
    ${real} sum1 = 0, dot1 = 0;
    for (int p = 0; p < chunks; ++p) {
        sum1 += partial[2 * (p * channels + c)];
        dot1 += partial[2 * (p * channels + c) + 1];
    }
% endif
% endif
% if writes:
% if saved:
    const ${real} var = squares / COUNT;
    const ${real} invstd = rsqrt(var + eps);
    if (part == 0 && get_local_id(0) == 0) {
        ${param.store("save_mean", "c", "mean")}
        ${param.store("save_invstd", "c", "invstd")}
% if tracks:
        const ${real} unbiased = squares / (COUNT - 1);
        const ${real} old_mean = ${param.load("running_mean", "c")};
        const ${real} old_var = ${param.load("running_var", "c")};
        ${param.store("running_mean", "c", "old_mean + momentum * (mean - old_mean)")}
        ${param.store("running_var", "c", "old_var + momentum * (unbiased - old_var)")}
% endif
    }
% endif
    const ${real} scale = invstd${" * " + param.load("weight", "c") if affine else ""};
% if fwd:
    const ${real} shift = ${param.load("(bias + bias_start)", "c") + " " if affine else ""}- mean * scale;
${each(write_y)}\
% else:
% if affine:
    if (part == 0 && get_local_id(0) == 0) {
        ${param.store("(grad_weight + grad_weight_start)", "c", "dot1 * invstd")}
        ${param.store("(grad_bias + grad_bias_start)", "c", "sum1")}
    }
% endif
% if trains:
    const ${real} grad_mean = sum1 / COUNT;
    const ${real} slope = dot1 * invstd * invstd / COUNT;
% endif
${each(items.write_grad_x)}\
% endif
% endif
}
