<%doc>
Negative log likelihood of x [rows, classes, inner] at target [rows, inner], and its gradient.

direction   "fwd" writes loss and total_weight, "join" adds up the sums of a "fwd" in pieces, "bwd"
            writes grad_x
reduction   "none" (one loss per target), "mean" (over the weights) or "sum"
weighted    there are weights, one per class
dtype       DType of x, its gradient, the loss and the weights
classes, ignore           items of a row, and the target that counts for nothing
flat        inner is 1: nothing is divided by it
index       type that counts the items of x
local_items work-items of a group that reduces, or that writes a block of the gradient
pieces      work-groups that each add up a piece of the targets; 1: the result is written at once
block       items of a block of the gradient where inner is 1: zeros are written first, by vectors
            of `width`, then the few items that are none
by_rows     the gradient's work-items are [inner, rows * classes], which divides nothing by inner;
            else they are along one dimension

note        the function note_fault, and `number` what it notes: a target that names no class, which
            counts for nothing too

How many targets there are, rows * inner, and inner are arguments: they differ from call to call.
The global size is pieces * local_items for a reduction, rows * inner for "none".
</%doc>
<%
    from ocl_backend.kernels import vectors
    real = dtype.value
    at = f"i * {classes} + label" if flat else f"(i / inner * {classes} + label) * inner + i % inner"
    weight = dtype.load("(weight + weight_start)", "label") if weighted else "1"
    reduces = direction != "bwd" and reduction != "none"
    has_grad = direction == "bwd"
%>\
<%def name="finish(sum, weights)">\
        ${dtype.store("(loss + loss_start)", "0", f"{sum} / {weights}" if reduction == "mean" else sum)}
        ${dtype.store("(total_weight + total_weight_start)", "0", weights)}
</%def>\
<%def name="gradient(of)">
        value = -${dtype.load("(grad + grad_start)", of if reduction == "none" else "0")} * ${weight};
% if reduction == "mean":
        value /= ${dtype.load("(total_weight + total_weight_start)", "0")};
% endif
</%def>\
<%def name="add_up()">\
    __local ${real} sums[${local_items}], weights[${local_items}];
    sums[item] = sum;
    weights[item] = weight_sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_way = ${local_items // 2}; half_way > 0; half_way /= 2) {
        if (item < half_way) {
            sums[item] += sums[item + half_way];
            weights[item] += weights[item + half_way];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>\
${vectors.prelude(dtype, width)}
${note}
% if direction == "join":
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void nll_loss_join(
    const __global ${real} *restrict pieces, const long pieces_start,
    __global ${dtype.storage} *restrict loss, const long loss_start,
    __global ${dtype.storage} *restrict total_weight, const long total_weight_start)
{
    const int item = get_local_id(0);
    ${real} sum = 0, weight_sum = 0;
    for (int i = item; i < ${pieces}; i += ${local_items}) {
        sum += pieces[pieces_start + 2 * i];
        weight_sum += pieces[pieces_start + 2 * i + 1];
    }
${add_up()}\
    if (item == 0) {
${finish("sums[0]", "weights[0]")}\
    }
}
% else:
% if reduces or (has_grad and flat):
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
% else:
__kernel
% endif
void nll_loss_${direction}(
    const ${index} targets, const ${index} inner,
% if not has_grad:
    const __global ${dtype.storage} *restrict x, const long x_start,
% else:
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start,
% endif
    const __global long *restrict target, const long target_start,
    const __global ${dtype.storage} *restrict weight, const long weight_start,
% if pieces > 1:
    __global ${real} *restrict sums_data, const long sums_start,
% else:
% if not has_grad:
    __global ${dtype.storage} *restrict loss, const long loss_start,
% endif
    __global ${dtype.storage} *restrict total_weight, const long total_weight_start\
${"" if has_grad else ","}
% endif
% if not has_grad:
    volatile __global long *faults, const long faults_start
% endif
)
{
    target += target_start;
% if has_grad and flat:
    const ${index} first = (${index})get_group_id(0) * ${block};
    const ${index} past = min(first + ${block}, targets * ${classes});
    grad_x += grad_x_start;
    ${index} i = first + (int)get_local_id(0) * ${width};
    const ${vectors.vector(real, width)} zeros = 0;
    for (; i + ${width} <= past; i += ${local_items * width}) {
% for line in vectors.store(dtype, "grad_x", "i", "1", "zeros", width):
        ${line}
% endfor
    }
    for (const ${index} end = min(past, i + ${width}); i < end; ++i) {
        ${dtype.store("grad_x", "i", "0.0f" if real == "float" else "0.0")}
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (${index} of = first / ${classes} + (int)get_local_id(0); of * ${classes} < past; of += ${local_items}) {
        const long label = target[of];
        if (label < 0 || label >= ${classes} || label == ${ignore})
            continue;
        const ${index} at = of * ${classes} + label;
        if (at < first || at >= past)
            continue;
        ${real} value;
${gradient("of")}\
        ${dtype.store("grad_x", "at", "value")}
    }
% elif has_grad:
% if by_rows:
    const ${index} k = get_global_id(0), row = get_global_id(1);
% else:
    const ${index} k = get_global_id(0) % inner, row = get_global_id(0) / inner;
% endif
    if (k >= inner || row >= targets / inner * ${classes})
        return;
    const ${index} c = row % ${classes}, of = row / ${classes} * inner + k;
    const long label = target[of];
    ${real} value = 0;
    if (label == c && label != ${ignore}) {
${gradient("of")}\
    }
    ${dtype.store("(grad_x + grad_x_start)", "row * inner + k", "value")}
% else:
    x += x_start;
% if reduction == "none":
    const ${index} i = get_global_id(0);
    const long label = target[i];
    ${real} value = 0;
    const bool known = label >= 0 && label < ${classes};
    if (label != ${ignore} && !known)
        note_fault(faults + faults_start, ${number}, label, ${classes}, 1);
    if (label != ${ignore} && known) {
        value = -${dtype.load("x", at)} * ${weight};
    }
    ${dtype.store("(loss + loss_start)", "i", "value")}
    if (i == 0) {
        ${dtype.store("(total_weight + total_weight_start)", "0", f"({real})0")}
    }
% else:
    const int item = get_local_id(0);
    ${real} sum = 0, weight_sum = 0;
    for (${index} i = get_global_id(0); i < targets; i += ${local_items * pieces}) {
        const long label = target[i];
        const bool known = label >= 0 && label < ${classes};
        if (label != ${ignore} && !known)
            note_fault(faults + faults_start, ${number}, label, ${classes}, 1);
        if (label != ${ignore} && known) {
            const ${real} w = ${weight};
            sum -= w * ${dtype.load("x", at)};
            weight_sum += w;
        }
    }
${add_up()}\
    if (item == 0) {
% if pieces > 1:
        sums_data[sums_start + 2 * get_group_id(0)] = sums[0];
        sums_data[sums_start + 2 * get_group_id(0) + 1] = weights[0];
% else:
${finish("sums[0]", "weights[0]")}\
% endif
    }
% endif
% endif
}
% endif
