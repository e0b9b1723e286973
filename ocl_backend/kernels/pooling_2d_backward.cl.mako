<%doc>
Gradient of 2-d pooling, without atomic additions, so that the sum has one order: every input item
gathers from the windows it lies in; or, `scatters`, a work-item adds up a whole plane by itself.

kind        "max", "avg" or "adaptive", as in pooling_2d.cl.mako, whose parameters these are
scatters    for maxima on CPUs, where a plane stays in cache and its indices are read but once; in narrow
            storage sums would round at every step, so that rows are private while windows meet them
apart       no two windows meet: an item has one gradient at most, which is moved as it is
dtype       DType of the gradients
height, width, out_h, out_w, kernel, stride, pad, dilation, count    as there
block       pair (h, w) of the items that a work-item gathers for: 1 x 1, or for maxima stride x stride,
            which lie in the same windows, so that their indices are read but once
abreast     where windows are tiles that cover a plane: how many a work-item has side by side, which fill
            vectors of 4, `block` being all their items; all tensors begin where any access of a GPU may.
            Else 0
index       type of the number of work-items wanted, the argument `items`: blocks of all planes, or
            planes; the global size is that, rounded up
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
    # most windows along a dimension that one item can lie in
    reach_h = (kernel_h - 1) * dilation_h // stride_h + 1
    reach_w = (kernel_w - 1) * dilation_w // stride_w + 1
    block_h, block_w = block
    columns = -(-(width + pad_w % block_w) // block_w)
    rows = -(-(height + pad_h % block_h) // block_h)
    # a vector of items, and the window of each
    wide = vectors.vector(real, block_w)
    raw = "ushort" if dtype.storage == "half" else dtype.storage
    meets = (kernel_h - 1) * dilation_h + 1  # rows of a window
    # lines of a plane and of its windows; where all are private, a plane is one line
    lines, length, out_lines, out_length = (
        (1, height * width, 1, out_h * out_w) if meets >= height else (height, width, out_h, out_w))
    kept = min(meets, lines)
    lanes = next((n for n in vectors.CPU_WIDTHS if n <= length), 1)
    inside = "if (indices[at] >= 0) // else all items of this window are padding\n            " if max(dilation) > 1 else ""
    windows = ".s" + "".join(f"{s // kernel_w:x}" for s in range(block_w)) if abreast > 1 else ""
%>\
${vectors.prelude(dtype, block_w if abreast else lanes if scatters and not apart else 1)}
__kernel void pool_${kind}_backward(
    const __global ${dtype.storage} *restrict grad, const long grad_start,
% if kind == "max":
    const __global long *restrict indices, const long indices_start,
% endif
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start, const ${index} items)
{
    const ${index} id = get_global_id(0);
    if (id >= items) {
        return;
    }
    const long plane = id${"" if scatters else f" / {columns * rows}"};
    grad += grad_start + plane * ${out_h * out_w};
    grad_x += grad_x_start + plane * ${height * width};
% if kind == "max":
    indices += indices_start + plane * ${out_h * out_w};
% endif
% if scatters:
% if apart or dtype.storage == real:
    const __global ${raw} *given = (const __global ${raw} *)grad;
    __global ${raw} *total = (__global ${raw} *)grad_x;
    for (int at = 0; at < ${height * width}; ++at) {
        total[at] = 0;
    }
    for (int at = 0; at < ${out_h * out_w}; ++at) {
        ${inside}total[indices[at]] ${"=" if apart else "+="} given[at];
    }
% else:
    ${real} sums[${kept * length}];
    for (int at = 0; at < ${kept * length}; ++at) {
        sums[at] = 0;
    }
    int line = 0; // the first that further windows may meet; it has the sums of line % ${kept}
    for (int oh = 0; oh < ${out_lines}; ++oh) {
        for (int at = oh * ${out_length}; at < (oh + 1) * ${out_length}; ++at) {
            const int place = (int)indices[at];
            ${inside}sums[place / ${length} % ${kept} * ${length} + place % ${length}] += ${dtype.load("grad", "at")};
        }
        const int last = oh < ${out_lines - 1} ? min((oh + 1) * ${stride_h} - ${pad_h}, ${lines}) : ${lines};
        for (; line < last; ++line) {
            ${real} *done = sums + line % ${kept} * ${length};
            const int first = line * ${length};
% if lanes > 1:
            for (int at = 0; at <= ${length - lanes}; at += ${lanes}) {
                const ${vectors.vector(real, lanes)} found = vload${lanes}(0, done + at);
% for text in vectors.store(dtype, "grad_x", "first + at", "1", "found", lanes):
                ${text}
% endfor
            }
% endif
            for (int at = ${length // lanes * lanes if lanes > 1 else 0}; at < ${length}; ++at) {
                ${dtype.store("grad_x", "first + at", "done[at]")}
            }
            for (int at = 0; at < ${length}; ++at) {
                done[at] = 0;
            }
        }
    }
% endif
% elif abreast:
    const int left = id % ${columns} * ${block_w};
    const int top = id / ${columns} % ${rows} * ${block_h};
    const int window = top / ${block_h} * ${out_w} + left / ${kernel_w};
    const ${vectors.vector(real, abreast)} given = ${vectors.load(dtype, "grad", "window", "1", abreast, True)};
    const ${vectors.vector("long", abreast)} found = ${vectors.load(DTYPES[torch.int64], "indices", "window", "1", abreast, True)};
    const ${vectors.vector("int", abreast)} place = ${vectors.convert("long", "int", "found", abreast)};
    for (int r = 0; r < ${block_h}; ++r) {
        const int at = (top + r) * ${width} + left;
        const int4 here = (int4)(${", ".join(f"at + {s}" for s in range(block_w))});
        const ${wide} sums = (int4)(place${windows}) == here ? (${wide})(given${windows}) : (${wide})(0);
% for line in vectors.store(dtype, "grad_x", "at", "1", "sums", block_w, True):
        ${line}
% endfor
    }
% elif kind == "max":
    const int left = id % ${columns} * ${block_w} - ${pad_w % block_w};
    const int top = id / ${columns} % ${rows} * ${block_h} - ${pad_h % block_h};
    const int last_oh = (top + ${pad_h}) / ${stride_h};
    const int last_ow = (left + ${pad_w}) / ${stride_w};
    ${real} sums[${block_h}][${block_w}] = {{0}};
    for (int i = 0; i < ${reach_h}; ++i) {
        for (int j = 0; j < ${reach_w}; ++j) {
            const int oh = last_oh - i, ow = last_ow - j;
            const int exists = oh >= 0 && oh < ${out_h} && ow >= 0 && ow < ${out_w};
            const int at = exists ? oh * ${out_w} + ow : 0;
            const ${real} value = ${dtype.load("grad", "at")};
            const int place = exists ? (int)indices[at] : -1;
            for (int r = 0; r < ${block_h}; ++r) {
                for (int s = 0; s < ${block_w}; ++s) {
                    const int here = (top + r) * ${width} + left + s;
                    sums[r][s] += place == here && left + s >= 0 && left + s < ${width} ? value : 0;
                }
            }
        }
    }
    for (int r = 0; r < ${block_h}; ++r) {
        for (int s = 0; s < ${block_w}; ++s) {
            const int h = top + r, w = left + s;
            if (h >= 0 && h < ${height} && w >= 0 && w < ${width}) {
                ${dtype.store("grad_x", f"h * {width} + w", "sums[r][s]")}
            }
        }
    }
% else:
    const int w = id % ${columns};
    const int h = id / ${columns} % ${rows};
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
            const int top = oh * ${stride_h} - ${pad_h}, left = ow * ${stride_w} - ${pad_w};
            const int covers = h < top + ${kernel_h} && w < left + ${kernel_w};
            const int count = ${count};
            sum += exists && covers ? value / count : 0;
        }
    }
% endif
    ${dtype.store("grad_x", f"h * {width} + w", "sum")}
% endif
}
