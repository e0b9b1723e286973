<%doc>
Weighted sums of taps along each dimension, on a processor: y[d, h, w] takes all combinations of the
taps of d, h and w. A work-item makes `share` rows of y, one behind the other.

dtype       DType of x and y
outer       the dimensions before w that are not copied as they lie: of "d" and "h"
pixels      whether channels lie innermost in x and y; else w does, and y is planes
equal       taps of each result along w, as w's tables hold them: tap by tap, each `size_w` long; or 0:
            result by result, from begin_w[w]
weighted    whether along w some weight is not 1
copies      whether each result is a copy of an item, of which only the bytes count
lined       planes: rows of x are added before taps along w are; else the one tap of d and h is read
            where it lies
line        items that this needs
width       items of a vector of y
line_width  items of a vector that adds rows
</%doc>
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    real = dtype.value
    axes = [*outer, "w"]
    size = {"d": "size_d", "h": "size_h", "w": "size_w"}
%>\
<%
    item_of = "line[{}]" if lined else dtype.load("from", "{}").replace("{", "{{").replace("}", "}}").replace("{{}}", "{}")
    weight = " * ".join(f"weight_{axis}[tap_{axis}]" for axis in outer) or "1"
    offset = " + ".join(f"(long)item_{axis}[tap_{axis}] * step_{axis}" for axis in outer) or "0"
%>\
<%def name="taps(indent)">
% for axis in outer:
${indent}for (int tap_${axis} = begin_${axis}[o${axis}]; tap_${axis} < begin_${axis}[o${axis} + 1]; ++tap_${axis})
% endfor
</%def>\
<%def name="pixels_of(blocks, wide)">\
            for (; ${f"c + {blocks * wide} <= lanes" if blocks > 1 or wide == 1 else f"c < lanes && lanes >= {wide}"}; c += ${blocks * wide}) {
% if wide > 1 and blocks == 1:
                c = min(c, lanes - ${wide});  // the last vector repeats items
% endif
% for b in range(blocks):
                ${vectors.vector(real, wide)} sum_${b} = 0;
% endfor
${taps("                ")}\
% if equal:
                for (int tap = ow; tap < ${equal} * size_w; tap += size_w)
% else:
                for (int tap = begin_w[ow]; tap < begin_w[ow + 1]; ++tap)
% endif
                {
                    const __global ${dtype.storage} *from = image + ${offset} + item_w[tap] * step_w + c;
% if not copies:
                    const ${real} weight = ${weight} * weight_w[tap];
% endif
% for b in range(blocks):
                    sum_${b} += ${"" if copies else "weight * "}${vectors.load(dtype, "from", str(b * wide), "1", wide)};
% endfor
                }
% for b in range(blocks):
% for text in vectors.store(dtype, "to", f"c + {b * wide}", "1", f"sum_{b}", wide):
                ${text}
% endfor
% endfor
            }
</%def>\
<%def name="along_w(source)">\
% if equal:
${" + ".join((f"weight_w[{k} * size_w + ow] * " if weighted else "") + source.format(f"item_w[{k} * size_w + ow]") for k in range(equal))}\
% else:
sum_w(ow, ${"line" if lined else "from"}, begin_w, item_w, weight_w)\
% endif
</%def>\
${vectors.prelude(dtype, max(width, 2))}
% if not equal and not pixels:
${real} sum_w(const int ow, const ${"" if lined else "__global "}${real if lined else dtype.storage} *${"line" if lined else "from"},
    const __global int *begin_w, const __global int *item_w, const __global ${real} *weight_w)
{
    ${real} sum = 0;
    for (int tap = begin_w[ow]; tap < begin_w[ow + 1]; ++tap) {
        sum += weight_w[tap] * ${item_of.format("item_w[tap]")};
    }
    return sum;
}
% endif

__kernel void axis_sums(
    const __global ${dtype.storage} *restrict x, const long x_start,
    __global ${dtype.storage} *restrict y, const long y_start,
% for axis in axes:
    const __global int *restrict begin_${axis}, const long begin_${axis}_start,
    const __global int *restrict item_${axis}, const long item_${axis}_start,
    const __global ${real if not copies else "float"} *restrict weight_${axis}, const long weight_${axis}_start,
% endfor
    const long rows, const long share, const long channels, const long size_d, const long size_h,
    const long size_w, const long items_w, const long step_n, const long step_c, const long step_d,
    const long step_h, const long step_w, const long run_begin, const long run_end, const long run_item)
{
    x += x_start;
    y += y_start;
% for axis in axes:
    begin_${axis} += begin_${axis}_start;
    item_${axis} += item_${axis}_start;
    weight_${axis} += weight_${axis}_start;
% endfor
    const long first = get_global_id(0) * share;
    for (long row = first; row < min(first + share, rows); ++row) {
        const long oh = row % size_h;
        const long od = row / size_h % size_d;
        const long plane = row / (size_h * size_d);
% if pixels:
        const __global ${dtype.storage} *image = x + plane * step_n${"" if "h" in outer else " + oh * step_h"}${"" if "d" in outer else " + od * step_d"};
        for (long ow = 0, taken; ow < size_w; ow += taken) {
            taken = ow == run_begin && run_end > run_begin ? run_end - run_begin : 1;
            const long lanes = taken * channels;
            __global ${dtype.storage} *to = y + (row * size_w + ow) * channels;
            long c = 0;
% for blocks, wide in ((4, width), (1, width), (1, 1)):
% if width > 1 or blocks * wide == 1:
${pixels_of(blocks, wide)}\
% endif
% endfor
        }
% else:
        const __global ${dtype.storage} *image = x + plane / channels * step_n + plane % channels * step_c${"" if "h" in outer else " + oh * step_h"}${"" if "d" in outer else " + od * step_d"};
        __global ${dtype.storage} *to = y + row * size_w;
% if lined:
        ${real} line[${line}];
<% none = " || ".join(f"begin_{axis}[o{axis}] == begin_{axis}[o{axis} + 1]" for axis in outer) %>        if (${none}) {
            for (long ow = 0; ow < size_w; ++ow) {
                ${dtype.store("to", "ow", f"({real})0")}
            }
            continue;
        }
        for (long w = 0; w < items_w; w += ${line_width}) {
% if line_width > 1:
            w = min(w, items_w - ${line_width});  // the last vector repeats items
% endif
            ${vectors.vector(real, line_width)} sum = 0;
${taps("            ")}\
            {
                const __global ${dtype.storage} *from = image + ${offset};
                sum += (${real})(${weight}) * ${vectors.load(dtype, "from", "w", "1", line_width)};
            }
            ${"line[w] = sum" if line_width == 1 else f"vstore{line_width}(sum, 0, line + w)"};
        }
% else:
        const __global ${dtype.storage} *from = image${"".join(f" + (long)item_{axis}[begin_{axis}[o{axis}]] * step_{axis}" for axis in outer)};
% endif
        long ow = 0;
% for begin, end in (("0", "run_begin"), ("run_end", "size_w")):
        ow = ${begin};
% if width > 1:
        for (; ow < ${end} && ${end} - (${begin}) >= ${width}; ow += ${width}) {
            ow = min(ow, ${end} - ${width});  // the last vector repeats items
            ${real} sums[${width}];
            #pragma unroll
            for (int lane = 0; lane < ${width}; ++lane, ++ow) {
                sums[lane] = ${along_w(item_of)};
            }
            ow -= ${width};
            const ${vectors.vector(real, width)} sum = vload${width}(0, sums);
% for text in vectors.store(dtype, "to", "ow", "1", "sum", width):
            ${text}
% endfor
        }
% endif
        for (; ow < ${end}; ++ow) {
            const ${real} sum = ${along_w(item_of)};
            ${dtype.store("to", "ow", "sum")}
        }
% if loop.first and width > 1:
        for (; ow < run_end; ow += ${width}) {
            ow = min(ow, run_end - ${width});
<%
    at = "run_item + ow - run_begin"
    whole = f"vload{width}(0, line + {at})" if lined else vectors.load(dtype, "from", at, "1", width)
%>\
            const ${vectors.vector(real, width)} sum = ${whole};
% for text in vectors.store(dtype, "to", "ow", "1", "sum", width):
            ${text}
% endfor
        }
% endif
% endfor
% endif
    }
}
