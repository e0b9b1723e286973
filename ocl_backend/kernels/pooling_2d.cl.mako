<%doc>
2-d pooling of planes [height, width] to [out_h, out_w], one output per work-item or `abreast`.

kind        "max" (also writes where in the plane it lay, as a long), "avg", or "adaptive" (windows
            of torch.nn.AdaptiveAvgPool2d, which differ in size)
dtype       DType of x and y
height, width, out_h, out_w    sizes; x and y are dense
kernel, stride, pad, dilation  pairs (h, w); adaptive uses none of them, avg no dilation
count       what avg divides by, for a window that begins at `top`, `left`
whole       no window reaches over an edge of its plane, so that nothing is tested
flat        neighbours cross rows and planes, for GPUs: the global size is the number of `outputs`,
            an argument, by `abreast`, rounded up; else it is out_w x out_h x planes
index       type of such a number
lowest      the lowest number of the dtype
abreast     with `flat`, where windows tile the rows and are whole: outputs of a work-item, side by side,
            whose windows fill vectors of 4; all tensors begin where any access of a GPU may. Else 0
</%doc>
<%!
    import torch
    from ocl_backend.dtypes import DTYPES
    from ocl_backend.kernels import vectors
%>\
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
<%def name="tiles()">
<%
    wide, longs = vectors.vector(real, abreast), DTYPES[torch.int64]
    taps = [".s" + "".join(f"{o * kernel[1] + s:x}" for o in range(abreast)) for s in range(kernel[1])]
    steps = ", ".join(str(o * kernel[1]) for o in range(abreast))
%>\
    const int first = oh * ${stride[0] * width} + ow * ${stride[1]};
% if kind == "max":
    ${wide} best = 0;
    ${vectors.vector("int", abreast)} best_at = -1;
% else:
    ${wide} sum = 0;
% endif
    #pragma unroll
    for (int r = 0; r < ${kernel[0]}; ++r) {
        const int at = first + r * ${dilation[0] * width};
        const ${vectors.vector(real, abreast * kernel[1])} row = ${vectors.load(dtype, "x", "at", "1", abreast * kernel[1], True)};
% for s, tap in enumerate(taps):
% if kind == "max":
        {
            const ${wide} value = row${tap};
            // a NaN wins over everything, as in torch
            const ${vectors.vector("int", abreast)} wins = best_at < 0 || value > best || value != value;
            best = wins ? value : best;
            best_at = wins ? at + ${s} + (${vectors.vector("int", abreast)})(${steps}) : best_at;
        }
% else:
        sum += row${tap};
% endif
% endfor
    }
% if kind == "max":
% for line in [*vectors.store(dtype, "y", "out", "1", "best", abreast, True), *vectors.store(longs, "(indices + indices_start)", "out", "1", vectors.convert("int", "long", "best_at", abreast), abreast, True)]:
    ${line}
% endfor
% else:
    const ${wide} mean = sum / (${real})(${count});
% for line in vectors.store(dtype, "y", "out", "1", "mean", abreast, True):
    ${line}
% endfor
% endif
</%def>\
${vectors.prelude(dtype, max(abreast, 1))}
__kernel void pool_${kind}(
    const __global ${dtype.storage} *restrict x, const long x_start,
% if kind == "max":
    __global long *restrict indices, const long indices_start,
% endif
    __global ${dtype.storage} *restrict y, const long y_start${f", const {index} outputs" if flat else ""})
{
% if flat:
    const ${index} out = get_global_id(0)${f" * {abreast}" if abreast else ""};
    if (out >= outputs) {
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
% elif abreast:
${tiles()}\
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
% if not whole and max(dilation) > 1:
    if (best_at < 0) { // all items of this window are padding
        best = ${lowest};
    }
% endif
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
    const int count = ${count};
    ${dtype.store("y", "out", "sum / count")}
% endif
% endif
}
