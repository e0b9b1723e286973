<%doc>
2-d pooling of planes [height, width] to [out_h, out_w], one output per work-item.

kind        "max" (also writes where in the plane it lay, as a long), "avg", or "adaptive" (windows
            of torch.nn.AdaptiveAvgPool2d, which differ in size)
dtype       DType of x and y
height, width, out_h, out_w    sizes; x and y are dense
kernel, stride, pad, dilation  pairs (h, w); adaptive uses none of them, avg no dilation
count_pad   avg divides by the window's size with the padding it covers
divisor     avg divides by this instead, unless it is 0
whole       no window reaches over an edge of its plane, so that nothing is tested
flat        how many outputs there are, for GPUs, whose neighbours cross rows and planes: the global
            size is that, rounded up; 0: the global size is out_w x out_h x planes
</%doc>
<%
    real = dtype.value
    (kernel_h, kernel_w), (stride_h, stride_w) = kernel, stride
    (pad_h, pad_w), (dilation_h, dilation_w) = pad, dilation
%>\
<%def name="place()">
% if whole:
            const int at = h * ${width} + w, inside = 1;
% else:
            const int at = clamp(h, 0, ${height - 1}) * ${width} + clamp(w, 0, ${width - 1});
            const int inside = h >= 0 && h < ${height} && w >= 0 && w < ${width};
% endif
</%def>\
${dtype.prelude}
__kernel void pool_${kind}(
    const __global ${dtype.storage} *restrict x, const long x_start,
% if kind == "max":
    __global long *restrict indices, const long indices_start,
% endif
    __global ${dtype.storage} *restrict y, const long y_start)
{
% if flat:
    const ${"uint" if flat < 2**31 else "ulong"} out = get_global_id(0);
    if (out >= ${flat}) {
        return;
    }
    const int ow = out % ${out_w};
    const int oh = out / ${out_w} % ${out_h};
    const long plane = out / ${out_h * out_w};
% else:
    const int ow = get_global_id(0);
    const int oh = get_global_id(1);
    const long plane = get_global_id(2);
    const long out = (plane * ${out_h} + oh) * ${out_w} + ow;
% endif
    x += x_start + plane * ${height * width};
    y += y_start;
% if kind == "adaptive":
    const int top = (long)oh * ${height} / ${out_h};
    const int left = (long)ow * ${width} / ${out_w};
    const int bottom = ((long)(oh + 1) * ${height} + ${out_h - 1}) / ${out_h};
    const int right = ((long)(ow + 1) * ${width} + ${out_w - 1}) / ${out_w};
    ${real} sum = 0;
    for (int h = top; h < bottom; ++h) {
        for (int w = left; w < right; ++w) {
            sum += ${dtype.load("x", f"h * {width} + w")};
        }
    }
    ${dtype.store("y", "out", "sum / ((bottom - top) * (right - left))")}
% else:
    const int top = oh * ${stride_h} - ${pad_h};
    const int left = ow * ${stride_w} - ${pad_w};
% if kind == "max":
    ${real} best = 0;
    int best_at = -1;
    for (int r = 0; r < ${kernel_h}; ++r) {
        for (int s = 0; s < ${kernel_w}; ++s) {
            const int h = top + r * ${dilation_h};
            const int w = left + s * ${dilation_w};
${place()}\
            const ${real} value = ${dtype.load("x", "at")};
            // a NaN wins over everything, as in torch
            const int wins = best_at < 0 || value > best || value != value;
            best = inside && wins ? value : best;
            best_at = inside && wins ? at : best_at;
        }
    }
    ${dtype.store("y", "out", "best")}
    indices[indices_start + out] = best_at;
% else:
    ${real} sum = 0;
    for (int r = 0; r < ${kernel_h}; ++r) {
        for (int s = 0; s < ${kernel_w}; ++s) {
            const int h = top + r, w = left + s;
${place()}\
            sum += inside ? ${dtype.load("x", "at")} : 0;
        }
    }
% if divisor:
    const int count = ${divisor};
% elif count_pad:
    const int count = (min(top + ${kernel_h}, ${height + pad_h}) - top)
        * (min(left + ${kernel_w}, ${width + pad_w}) - left);
% else:
    const int count = (min(top + ${kernel_h}, ${height}) - max(top, 0))
        * (min(left + ${kernel_w}, ${width}) - max(left, 0));
% endif
    ${dtype.store("y", "out", "sum / count")}
% endif
% endif
}
