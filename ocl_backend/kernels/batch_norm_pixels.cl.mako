<%doc>
Batch normalisation of x [rows, channels], forward or backward: images in channels_last.

Neighbouring work-items take neighbouring channels. A work-group has chunk rows, which its LOCAL_R rows
of work-items take in turns. With statistics of the batch, and backward, there are three launches, else
the last one alone:

step        "sums": two sums of each chunk go into `partial`; forward the mean and the squared distances
            from it, each work-item summing distances from one of its rows, combined after Chan, Golub and
            LeVeque 1979; backward of grad and grad * (x - mean)
            "combines": those of all chunks, into the head of `partial`, and what torch asks for
            "writes": the result
width       channels read at once; it divides channels
most                work-items of a group, of which the launch has some along channels, LOCAL_C, and
                    some along rows, LOCAL_R, no more in all; 1: a single one
text                how a vector of channels is moved: see `batch_norm_text`

`partial` is [2][channels], forward mean and inverse deviation, backward both sums; behind it
[chunks][2][channels]. The other parameters are `batch_norm`'s. Arguments are rows, the pixels of all
images, and chunk, the rows per work-group; chunks = rows / chunk, rounded up.
</%doc>
<%namespace name="items" file="batch_norm_items.cl.mako"/>\
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    real = dtype.value
    kind = vectors.vector(real, width)
    fwd = direction == "fwd"
    alone = most == 1
%>\
${vectors.prelude(dtype, width)}\
${vectors.prelude(param, width) if param is not dtype else ""}\
#define LOCAL_C ${"1" if alone else "(int)get_local_size(0)"}
#define LOCAL_R ${"1" if alone else "(int)get_local_size(1)"}

% if step != "writes":
/* The sum over the rows of work-items, for each of their columns. */
${kind} group_sum(${kind} value, __local ${kind} *scratch)
{
% if not alone:
    scratch[get_local_id(1) * LOCAL_C + get_local_id(0)] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    value = scratch[get_local_id(0)];
    #pragma unroll 8
    for (int r = 1; r < LOCAL_R; ++r) {
        value += scratch[r * LOCAL_C + get_local_id(0)];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    return value;
}

% endif
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if alone else ""}
void batch_norm_${direction}(
${items.arguments()}\
{
% if step != "writes":
    __local ${kind} scratch[${most}];
% endif
    const bool owns = get_global_id(0) * ${width} < channels;
    // a work-item beyond the last channel loads the last channels, so that it reaches every barrier,
    // and stores nothing
    const int c = min((int)get_global_id(0) * ${width}, channels - ${width});
    const int begin = (int)get_group_id(1) * chunk, end = min(begin + chunk, rows);
    const int first = begin + (int)get_local_id(1);
${items.starts()}\

% if step != "combines" and not (fwd and step == "sums"):
% if fwd and trains:
    const ${kind} mean = ${text.sums("partial", 0)}, invstd = ${text.sums("partial", 1)};
% elif trains:
    const ${kind} mean = ${text.parameter("save_mean")};
    const ${kind} invstd = ${text.parameter("save_invstd")};
% else:
    const ${kind} mean = ${text.parameter("running_mean")};
    const ${kind} invstd = rsqrt(${text.parameter("running_var")} + (${real})eps);
% endif
% endif
% if step == "sums":
% if fwd:
    // the middle one of three rows, so that distances are not from a single one far out
    const int apart = max(end - 1 - first, 0) / (2 * LOCAL_R) * LOCAL_R;
% for i in range(3):
    const ${kind} near${i} = ${text.load("x", f"(long)min(first + {i} * apart, end - 1) * channels + c")};
% endfor
    const ${kind} near = max(min(near0, near1), min(max(near0, near1), near2));
    ${kind} sum = 0, squares = 0;
    #pragma unroll 4
    for (int row = first; row < end; row += LOCAL_R) {
        const long at = (long)row * channels + c;
        const ${kind} d = ${text.load("x")} - near;
        sum += d;
        squares += d * d;
    }
    const ${real} taken = first < end ? (end - 1 - first) / LOCAL_R + 1 : 0;
    const ${kind} own = sum / max(taken, (${real})1);
    const ${kind} one = group_sum(taken * (near + own), scratch) / (end - begin);
    const ${kind} away = near + own - one;
    const ${kind} two = group_sum(squares - sum * own + taken * away * away, scratch);
% else:
    ${kind} sum = 0, dot = 0;
    #pragma unroll 4
    for (int row = first; row < end; row += LOCAL_R) {
        const long at = (long)row * channels + c;
${items.load_grad(width)}\
        sum += g;
        dot += g * (${text.load("x")} - mean);
    }
    const ${kind} one = group_sum(sum, scratch), two = group_sum(dot, scratch);
% endif
    if (owns && get_local_id(1) == 0) {
        partial += 2 * channels * (1 + get_group_id(1)) + c;
        ${text.keep("partial", "one")}
        ${text.keep(f"(partial + channels)", "two")}
    }
% elif step == "combines":
    const int chunks = (rows + chunk - 1) / chunk;
    ${kind} sum = 0, rest = 0;
% if not alone:
    #pragma unroll 4
% endif
    for (int p = get_local_id(1); p < chunks; p += LOCAL_R) {
        const __global ${real} *part = partial + 2 * channels * (1 + p);
        sum += ${text.sums("part", 0)}${f" * ({real})min(chunk, rows - p * chunk)" if fwd else ""};
% if not fwd:
        rest += ${text.sums("part", 1)};
% endif
    }
    const ${kind} total = group_sum(sum, scratch);
% if fwd:
    const ${kind} mean = total / rows;
% if not alone:
    #pragma unroll 4
% endif
    for (int p = get_local_id(1); p < chunks; p += LOCAL_R) {
        const __global ${real} *part = partial + 2 * channels * (1 + p);
        const ${kind} away = ${text.sums("part", 0)} - mean;
        rest += ${text.sums("part", 1)} + away * away * (${real})min(chunk, rows - p * chunk);
    }
% endif
    const ${kind} total_rest = group_sum(rest, scratch);
    if (!owns || get_local_id(1)) {
        return;
    }
% if fwd:
    const ${kind} invstd = rsqrt(total_rest / rows + (${real})eps);
    ${text.keep("(partial + c)", "mean")}
    ${text.keep(f"(partial + channels + c)", "invstd")}
% for line in [*text.set_parameter("save_mean", "mean"), *text.set_parameter("save_invstd", "invstd")]:
    ${line}
% endfor
% if tracks:
    const ${kind} old_mean = ${text.parameter("running_mean")}, old_var = ${text.parameter("running_var")};
    const ${kind} new_mean = old_mean + momentum * (mean - old_mean);
    const ${kind} new_var = old_var + momentum * (total_rest / (rows - 1) - old_var);
% for line in [*text.set_parameter("running_mean", "new_mean"), *text.set_parameter("running_var", "new_var")]:
    ${line}
% endfor
% endif
% else:
    ${text.keep("(partial + c)", "total")}
    ${text.keep(f"(partial + channels + c)", "total_rest")}
% if affine:
% if trains:
    const ${kind} invstd = ${text.parameter("save_invstd")};
% else:
    const ${kind} invstd = rsqrt(${text.parameter("running_var")} + (${real})eps);
% endif
    const ${kind} slope = total_rest * invstd;
% for line in [*text.set_parameter("(grad_weight + grad_weight_start)", "slope"), *text.set_parameter("(grad_bias + grad_bias_start)", "total")]:
    ${line}
% endfor
% endif
% endif
% else:
    const ${kind} scale = invstd${" * " + text.parameter("weight") if affine else ""};
% if fwd:
    const ${kind} shift = ${text.parameter("(bias + bias_start)") + " " if affine else ""}- mean * scale;
% elif trains:
    const ${kind} grad_mean = ${text.sums("partial", 0)} / rows;
    const ${kind} slope = ${text.sums("partial", 1)} * invstd * invstd / rows;
% endif
    if (!owns) {
        return;
    }
    #pragma unroll 4
    for (int row = first; row < end; row += LOCAL_R) {
        const long at = (long)row * channels + c;
% if fwd:
${items.write_y(text.load("x"), width)}\
% else:
${items.write_grad_x(width)}\
% endif
    }
% endif
}
