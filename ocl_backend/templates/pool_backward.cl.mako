<%doc>
Gradient of 2-d pooling, without atomic additions, so that the sum has one order: every input item
gathers from the windows it lies in or, `scatters`, a work-item adds up a whole plane by itself.

kind        "max", "avg" or "adaptive", as in pool.cl.mako, whose parameters these are
scatters    for maxima on CPUs, where a plane stays in cache and its indices are read but once
dtype       DType of the gradients
height, width, out_h, out_w, kernel, stride, pad, dilation, count_pad, divisor    as there

Global size is width x height x planes, or 1 x 1 x planes.
</%doc>
<%
    real = dtype.value
    (kernel_h, kernel_w), (stride_h, stride_w) = kernel, stride
    (pad_h, pad_w), (dilation_h, dilation_w) = pad, dilation
    # most windows along a dimension that one item can lie in
    reach_h = (kernel_h - 1) * dilation_h // stride_h + 1
    reach_w = (kernel_w - 1) * dilation_w // stride_w + 1
%>\
${dtype.prelude}
__kernel void pool_${kind}_backward(
    const __global ${dtype.storage} *restrict grad, const long grad_start,
% if kind == "max":
    const __global long *restrict indices, const long indices_start,
% endif
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start)
{
    const long plane = get_global_id(2);
    grad += grad_start + plane * ${out_h * out_w};
    grad_x += grad_x_start + plane * ${height * width};
% if kind == "max":
    indices += indices_start + plane * ${out_h * out_w};
% endif
% if scatters:
    for (int at = 0; at < ${height * width}; ++at) {
        grad_x[at] = 0;
    }
    for (int at = 0; at < ${out_h * out_w}; ++at) {
        grad_x[indices[at]] += grad[at];
    }
% else:
    const int w = get_global_id(0);
    const int h = get_global_id(1);
    ${real} sum = 0;
% if kind == "adaptive":
    const int oh_end = ((long)(h + 1) * ${out_h} + ${height - 1}) / ${height};
    const int ow_end = ((long)(w + 1) * ${out_w} + ${width - 1}) / ${width};
    for (int oh = (long)h * ${out_h} / ${height}; oh < oh_end; ++oh) {
        for (int ow = (long)w * ${out_w} / ${width}; ow < ow_end; ++ow) {
            const int rows = ((long)(oh + 1) * ${height} + ${out_h - 1}) / ${out_h}
                - (long)oh * ${height} / ${out_h};
            const int columns = ((long)(ow + 1) * ${width} + ${out_w - 1}) / ${out_w}
                - (long)ow * ${width} / ${out_w};
            sum += ${dtype.load("grad", f"oh * {out_w} + ow")} / (rows * columns);
        }
    }
% else:
    const int last_oh = (h + ${pad_h}) / ${stride_h};
    const int last_ow = (w + ${pad_w}) / ${stride_w};
    for (int i = 0; i < ${reach_h}; ++i) {
        for (int j = 0; j < ${reach_w}; ++j) {
            const int oh = last_oh - i, ow = last_ow - j;
            const int at = clamp(oh, 0, ${out_h - 1}) * ${out_w} + clamp(ow, 0, ${out_w - 1});
            const int exists = oh >= 0 && oh < ${out_h} && ow >= 0 && ow < ${out_w};
            const ${real} value = ${dtype.load("grad", "at")};
% if kind == "max":
            sum += exists && indices[at] == h * ${width} + w ? value : 0;
% else:
            const int top = oh * ${stride_h} - ${pad_h}, left = ow * ${stride_w} - ${pad_w};
            const int covers = h < top + ${kernel_h} && w < left + ${kernel_w};
% if divisor:
            const int count = ${divisor};
% elif count_pad:
            const int count = (min(top + ${kernel_h}, ${height + pad_h}) - top)
                * (min(left + ${kernel_w}, ${width + pad_w}) - left);
% else:
            const int count = (min(top + ${kernel_h}, ${height}) - max(top, 0))
                * (min(left + ${kernel_w}, ${width}) - max(left, 0));
% endif
            sum += exists && covers ? value / count : 0;
% endif
        }
    }
% endif
    ${dtype.store("grad_x", f"h * {width} + w", "sum")}
% endif
}
