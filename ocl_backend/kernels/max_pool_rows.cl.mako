<%doc>
Maxima of windows and where in the volume they lie, on a processor, or their gradient where channels
lie last. Images are volumes of one slice. A work-item makes `share` rows of the result, one behind the other.

backward    the gradient: each item of x gathers from the windows it lies in
apart       no two windows meet: in the gradient those of a row scatter to it, since an item has one at most
pixels      whether channels lie innermost in all tensors; else they are planes. A window's rows are first
            compared with each other, then along the row that this leaves; of equal items the first one
            in the volume counts, of several that are no number the last one
dtype       DType of x and y
line        items of such a row with the padding on its sides, at least, and of a vector behind it
width       items of a vector; rows of planes may have fewer
kernel, stride, pad, dilation   along (d, h, w)
</%doc>
<%!
    import torch
    from ocl_backend.dtypes import DTYPES
    from ocl_backend.kernels import vectors
%>\
<%
    longs = DTYPES[torch.int64]
    (kernel_d, kernel_h, kernel_w), (stride_d, stride_h, stride_w) = kernel, stride
    (pad_d, pad_h, pad_w), (dilation_d, dilation_h, dilation_w) = pad, dilation
    raw = "ushort" if dtype.storage == "half" else dtype.storage
    widths = sorted({width, 1}, reverse=True)
    lanes = vectors.vector
%>\
<%def name="strided(name, s)">\
% if stride_w == 1:
vload${width}(0, ${name} + begin + ${s})\
% elif stride_w == 2:
(${"float" if name == "line" else "int"}${width})(vload${width}(0, ${name} + begin + ${s}).even, vload${width}(1, ${name} + begin + ${s}).even)\
% else:
(${"float" if name == "line" else "int"}${width})(${", ".join(f"{name}[begin + {s} + {k * stride_w}]" for k in range(width))})\
% endif
</%def>\
<%def name="each(name, count, wide)">
% if wide > 1:
            for (; ${name} < ${count} && ${count} >= ${wide}; ${name} += ${wide}) {
                ${name} = min(${name}, ${count} - ${wide});  // the last vector repeats items
% else:
            for (; ${name} < ${count}; ++${name}) {
% endif
                ${caller.body()}\
            }
</%def>\
${vectors.prelude(dtype, max(width, 2))}
__kernel void max_pool_rows(
% if backward:
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    const __global long *restrict indices, const long indices_start,
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start,
% else:
    const __global ${dtype.storage} *restrict x, const long x_start,
    __global long *restrict indices, const long indices_start,
    __global ${dtype.storage} *restrict y, const long y_start,
% endif
    const long rows, const long share, const long channels, const long depth, const long height,
    const long width, const long out_d, const long out_h, const long out_w)
{
    indices += indices_start;
% if backward:
    grad += grad_start;
    grad_x += grad_x_start;
% else:
    x += x_start;
    y += y_start;
% endif
% if not backward and not pixels:
    // behind the last window's end lies what the last vector reads in vain
    const int reach = (out_w - 1) * ${stride_w} + ${(kernel_w - 1) * dilation_w + 1};
% endif
    const long first = get_global_id(0) * share;
    for (long row = first; row < min(first + share, rows); ++row) {
% if backward:
        const int h = row % height + ${pad_h}, d = row / height % depth + ${pad_d};
        const long image = row / height / depth * out_d * out_h * out_w * channels;
        const int first_d = max(d - ${(kernel_d - 1) * dilation_d - stride_d + 1}, 0) / ${stride_d};
        const int last_d = min(d / ${stride_d}, (int)out_d - 1);
        const int first_h = max(h - ${(kernel_h - 1) * dilation_h - stride_h + 1}, 0) / ${stride_h};
        const int last_h = min(h / ${stride_h}, (int)out_h - 1);
% if apart:
        const int begin = ((d - ${pad_d}) * height + h - ${pad_h}) * width;
        __global ${raw} *to = (__global ${raw} *)grad_x + row * width * channels;
        for (long i = 0; i < width * channels; ++i) {
            to[i] = 0;
        }
        for (int ow = 0; ow < out_w && first_d <= last_d && first_h <= last_h; ++ow) {
            const long at = image + ((first_d * out_h + first_h) * out_w + ow) * channels;
            for (long c = 0; c < channels; ++c) {
                const long column = indices[at + c] - begin;
                if (column >= 0 && column < width) {
                    to[column * channels + c] = ((const __global ${raw} *)grad)[at + c];
                }
            }
        }
% else:
        for (int column = 0; column < width; ++column) {
            const int w = column + ${pad_w};
            const int here = ((d - ${pad_d}) * height + h - ${pad_h}) * width + column;
            const int first_w = max(w - ${(kernel_w - 1) * dilation_w - stride_w + 1}, 0) / ${stride_w};
            const int last_w = min(w / ${stride_w}, (int)out_w - 1);
            __global ${dtype.storage} *to = grad_x + (row * width + column) * channels;
            long c = 0;
% for wide in widths:
<%self:each name="c" count="channels" wide="${wide}">\
${lanes(dtype.value, wide)} sum = 0;
                for (int od = first_d; od <= last_d; ++od)
                for (int oh = first_h; oh <= last_h; ++oh) {
                    for (int ow = first_w; ow <= last_w; ++ow) {
                        const long at = image + ((od * out_h + oh) * out_w + ow) * channels + c;
                        const ${lanes("int", wide)} place = ${vectors.convert("long", "int", vectors.load(longs, "indices", "at", "1", wide), wide)};
                        sum += place == here ? ${vectors.load(dtype, "grad", "at", "1", wide)} : 0;
                    }
                }
% for text in vectors.store(dtype, "to", "c", "1", "sum", wide):
                ${text}
% endfor
</%self:each>\
% endfor
        }
% endif
% else:
        const int top = (int)(row % out_h) * ${stride_h} - ${pad_h};
        const int front = (int)(row / out_h % out_d) * ${stride_d} - ${pad_d};
        const __global ${dtype.storage} *plane =
            x + row / out_h / out_d * depth * height * width${" * channels" if pixels else ""};
        const int first_q = front < 0 ? (-front + ${dilation_d - 1}) / ${dilation_d} : 0;
        const int last_q = min(${kernel_d}, ((int)depth - front + ${dilation_d - 1}) / ${dilation_d});
        const int first_r = top < 0 ? (-top + ${dilation_h - 1}) / ${dilation_h} : 0;
        const int last_r = min(${kernel_h}, ((int)height - top + ${dilation_h - 1}) / ${dilation_h});
% if pixels:
        for (int ow = 0; ow < out_w; ++ow) {
            const int left = ow * ${stride_w} - ${pad_w};
            const int first_s = left < 0 ? (-left + ${dilation_w - 1}) / ${dilation_w} : 0;
            const int last_s = min(${kernel_w}, ((int)width - left + ${dilation_w - 1}) / ${dilation_w});
            const long to = (row * out_w + ow) * channels;
            // the first item of a window counts if all are the least number there is
            const int none = first_q < last_q && first_r < last_r && first_s < last_s
                ? ((front + first_q * ${dilation_d}) * (int)height + top + first_r * ${dilation_h}) * (int)width
                    + left + first_s * ${dilation_w}
                : -1;
            long c = 0;
% for wide in widths:
<%self:each name="c" count="channels" wide="${wide}">\
${lanes("float", wide)} best = -INFINITY;
                ${lanes("int", wide)} best_at = none;
                for (int q = first_q; q < last_q; ++q)
                for (int r = first_r; r < last_r; ++r) {
                    const int beside = (front + q * ${dilation_d}) * (int)height + top + r * ${dilation_h};
                    for (int s = first_s; s < last_s; ++s) {
                        const int at = beside * (int)width + left + s * ${dilation_w};
                        const ${lanes("float", wide)} value = ${vectors.load(dtype, "plane", "at * channels + c", "1", wide)};
                        const ${lanes("int", wide)} wins = (value > best) | (value != value);
                        best = wins ? value : best;
                        best_at = wins ? at : best_at;
                    }
                }
% for text in [*vectors.store(dtype, "y", "to + c", "1", "best", wide), *vectors.store(longs, "indices", "to + c", "1", vectors.convert("int", "long", "best_at", wide), wide)]:
                ${text}
% endfor
</%self:each>\
% endfor
        }
% else:
        float line[${line}];
        int places[${line}];
        const int filled = first_q < last_q && first_r < last_r ? (int)width : 0;
        for (int w = 0; w < ${pad_w}; ++w) {
            line[w] = -INFINITY;
            places[w] = INT_MAX;
        }
        for (int w = ${pad_w} + filled; w < reach; ++w) {
            line[w] = -INFINITY;
            places[w] = INT_MAX;
        }
        if (filled) {
            long w = 0;
% for wide in widths:
<%self:each name="w" count="width" wide="${wide}">\
const int first_row = (front + first_q * ${dilation_d}) * (int)height + top + first_r * ${dilation_h};
                ${lanes("float", wide)} best = ${vectors.load(dtype, "plane", "first_row * width + w", "1", wide)};
                ${lanes("int", wide)} best_row = first_row;
                for (int q = first_q; q < last_q; ++q)
                for (int r = q == first_q ? first_r + 1 : first_r; r < last_r; ++r) {
                    const int beside = (front + q * ${dilation_d}) * (int)height + top + r * ${dilation_h};
                    const ${lanes("float", wide)} value = ${vectors.load(dtype, "plane", "beside * width + w", "1", wide)};
                    const ${lanes("int", wide)} wins = (value > best) | (value != value);
                    best = wins ? value : best;
                    best_row = wins ? beside : best_row;
                }
% if wide > 1:
                const ${lanes("int", wide)} at = best_row * (int)width + (int)w
                    + (${lanes("int", wide)})(${", ".join(map(str, range(wide)))});
                vstore${wide}(best, 0, line + ${pad_w} + w);
                vstore${wide}(at, 0, places + ${pad_w} + w);
% else:
                line[${pad_w} + w] = best;
                places[${pad_w} + w] = best_row * (int)width + (int)w;
% endif
</%self:each>\
% endfor
        }
        const long to = row * out_w;
        for (long ow = 0; ow < out_w; ow += ${width}) {
            ow = max(min(ow, out_w - ${width}), 0L);  // the last vector repeats items
            const int begin = ow * ${stride_w};
            ${lanes("float", width)} best = ${strided("line", 0)};
            ${lanes("int", width)} best_at = ${strided("places", 0)};
            for (int s = ${dilation_w}; s < ${kernel_w * dilation_w}; s += ${dilation_w}) {
                const ${lanes("float", width)} value = ${strided("line", "s")};
                const ${lanes("int", width)} at = ${strided("places", "s")};
                const ${lanes("int", width)} later = at > best_at;
                const ${lanes("int", width)} wins = (value > best) | ((value == best) & ~later)
                    | ((value != value) & ((best == best) | later));
                best = wins ? value : best;
                best_at = wins ? at : best_at;
            }
            best_at = best_at == INT_MAX ? -1 : best_at;
            if (out_w >= ${width}) {
% for text in [*vectors.store(dtype, "y", "to + ow", "1", "best", width), *vectors.store(longs, "indices", "to + ow", "1", vectors.convert("int", "long", "best_at", width), width)]:
                ${text}
% endfor
            } else {
                float found[${width}];
                int found_at[${width}];
                vstore${width}(best, 0, found);
                vstore${width}(best_at, 0, found_at);
                for (int lane = 0; lane < out_w; ++lane) {
                    ${dtype.store("y", "to + lane", "found[lane]")}
                    indices[to + lane] = found_at[lane];
                }
            }
        }
% endif
% endif
    }
}
