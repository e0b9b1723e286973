<%doc>
Negative log likelihood of x [rows, classes, inner] at target [rows, inner], and its gradient.

direction   "fwd" writes loss and total_weight, "bwd" writes grad_x
reduction   "none" (one loss per target), "mean" (over the weights) or "sum"
weighted    there are weights, one per class
dtype       DType of x, its gradient, the loss and the weights
classes, ignore           items of a row, and the target that counts for nothing
flat        inner is 1: nothing is divided by it
index       type that counts the items of x
local_items work-items of the one group that reduces

note        the function note_fault, and `number` what it notes: a target that names no class, which
            counts for nothing too

How many targets there are, rows * inner, and inner are arguments: they differ from call to call. The
global size is local_items for a reduction, rows * inner for "none", rows * classes * inner backward.
</%doc>
<%
    real = dtype.value
    at = f"i * {classes} + label" if flat else f"(i / inner * {classes} + label) * inner + i % inner"
    weight = dtype.load("(weight + weight_start)", "label") if weighted else "1"
    reduces = direction == "fwd" and reduction != "none"
%>\
${dtype.prelude}
${note}
% if reduces:
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
% else:
__kernel
% endif
void nll_loss_${direction}(
    const ${index} targets, const ${index} inner,
% if direction == "fwd":
    const __global ${dtype.storage} *restrict x, const long x_start,
% else:
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start,
% endif
    const __global long *restrict target, const long target_start,
    const __global ${dtype.storage} *restrict weight, const long weight_start,
% if direction == "fwd":
    __global ${dtype.storage} *restrict loss, const long loss_start,
% endif
    __global ${dtype.storage} *restrict total_weight, const long total_weight_start\
% if direction == "fwd":
,
    volatile __global long *faults, const long faults_start\
% endif
)
{
    target += target_start;
% if direction == "bwd":
    const ${index} i = get_global_id(0);
% if flat:
    const ${index} c = i % ${classes}, of = i / ${classes};
% else:
    const ${index} c = i / inner % ${classes}, of = i / inner / ${classes} * inner + i % inner;
% endif
    const long label = target[of];
    ${real} value = 0;
    if (label == c && label != ${ignore}) {
        value = -${dtype.load("(grad + grad_start)", "of" if reduction == "none" else "0")} * ${weight};
% if reduction == "mean":
        value /= ${dtype.load("(total_weight + total_weight_start)", "0")};
% endif
    }
    ${dtype.store("(grad_x + grad_x_start)", "i", "value")}
% else:
    x += x_start;
    loss += loss_start;
    total_weight += total_weight_start;
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
    ${dtype.store("loss", "i", "value")}
    if (i == 0) {
        ${dtype.store("total_weight", "0", f"({real})0")}
    }
% else:
    __local ${real} sums[${local_items}], weights[${local_items}];
    const int item = get_local_id(0);
    ${real} sum = 0, weight_sum = 0;
    for (${index} i = item; i < targets; i += ${local_items}) {
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
    if (item == 0) {
        ${dtype.store("loss", "0", "sums[0] / weights[0]" if reduction == "mean" else "sums[0]")}
        ${dtype.store("total_weight", "0", "weights[0]")}
    }
% endif
% endif
}
