<%doc>
Depthwise correlation (one input channel per group in fwd, one output channel in bwd_data).

A work-item computes patch_h x patch_w results of one channel, with lanes along the row. It first
copies what they read to a window in private memory, zero where the padding is; columns that are
step apart lie side by side there, so that every tap of every stride is a plain vector load.

dtype, activation   storage type of input, weights, output, bias (accumulation is fp32); epilogue
sizes               names and values of the correlation's and the window's sizes
patch_h, patch_w    results per work-item
vec                 lanes of a vector
guarded             test each element of the window for the padding at run time (GPUs); else each
                    of the blocks of columns that differ at the edges has its own text (CPUs)
local_size          work-items per group
blocks              that text: which columns (None: all others), elements to copy, results to store
taps                for each tap of a row where it begins in a row of the window
step_w              distance of the columns that neighbouring results read
store_step          distance of neighbouring results in the output
bias                add bias[channel]
</%doc>
<%
    vf = "float" if vec == 1 else f"float{vec}"
    vectors = range(-(-patch_w // vec))
    unroll = "#pragma unroll\n" if guarded else ""
    added = " + LOAD1(bias + offset_bias + channel)" if bias else ""
    def lanes(text, start, width, of):
        """Lanes start to start + width of a vector that has `of` of them."""
        names = "".join(f"{i:x}" for i in range(start, start + width))
        return text if width == of else f"{text}.s{names}"
    def branch(first, columns):
        """The condition under which a piece of code is for this column."""
        if columns is None:
            return "" if first else "else "
        tests = " || ".join(f"column == {b}" for b in columns)
        return f"{'' if first else 'else '}if ({tests}) "
    def stored(value, at, width):
        return f"{at} = {value}" if width == 1 else f"vstore{width}({value}, 0, &{at})"
    def loaded(at):
        return at if vec == 1 else f"vload{vec}(0, &{at})"
%>\
${preamble}
${activation}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void depthwise(
    __global const elem_t *restrict in, const long offset_in,
    __global const elem_t *restrict weights, const long offset_weights,
% if bias:
    __global const elem_t *restrict bias, const long offset_bias,
% endif
    __global elem_t *restrict out, const long offset_out)
{
    const int id = get_global_id(0);
    const int column = id % COLUMNS;
    const int row0 = id / COLUMNS % BANDS * ${patch_h};
    const int channel = id / (COLUMNS * BANDS) % (GROUPS * CHANNELS);
    const int image = id / (COLUMNS * BANDS * GROUPS * CHANNELS);
    const int group = channel / CHANNELS;
    if (image >= BATCH) {
        return;
    }
    const int h0 = row0 * STEP_H + WINDOW_FIRST_H;
    const int w0 = column * ${patch_w} * STEP_W + WINDOW_FIRST_W;
    in += offset_in + (long)(image * GROUPS + group) * DEPTH * READ_H * READ_W + w0;
    weights += offset_weights + group * WEIGHT_GROUP + channel % CHANNELS * WEIGHT_OUT
        + KERNEL_FIRST_H * KERNEL_W + KERNEL_FIRST_W;
    out += offset_out + (long)(image * GROUPS * CHANNELS + channel) * WRITTEN_H * WRITTEN_W
        + (FIRST_H + row0 * STORE_STEP_H) * WRITTEN_W + FIRST_W + column * ${patch_w * store_step};

    float window[WINDOW_H][STEP_W * WINDOW_W];
    ${vf} acc[${patch_h}][${len(vectors)}];
${unroll}\
    for (int t = 0; t < WINDOW_H; ++t) {
${unroll}\
        for (int e = 0; e < STEP_W * WINDOW_W; ++e) {
            window[t][e] = 0.0f;
        }
    }
${unroll}\
    for (int y = 0; y < ${patch_h}; ++y) {
% for v in vectors:
        acc[y][${v}] = 0.0f;
% endfor
    }
    for (int d = 0; d < DEPTH; ++d) {
${unroll}\
        for (int t = 0; t < WINDOW_H; ++t) {
            const int h = h0 + t;
            __global const elem_t *row = in + (long)(d * READ_H + h) * READ_W;
            if (h < 0 || h >= READ_H) {
                continue;
            }
% if guarded:
#pragma unroll
            for (int e = 0; e < WINDOW_ELEMENTS; ++e) {
                const bool inside = w0 + e >= 0 && w0 + e < READ_W;
                window[t][e % STEP_W * WINDOW_W + e / STEP_W] = inside ? LOAD1(row + e) : 0.0f;
            }
% else:
% for block in blocks:
            ${branch(loop.first, block.columns)}{
% for e, width in block.copies:
% if step_w == 1:
                ${stored(f"LOAD{width}(row + {e})", f"window[t][{e}]", width)};
% elif width == 1:
                window[t][${e % step_w} * WINDOW_W + ${e // step_w}] = LOAD1(row + ${e});
% else:
                const float${width} v${e} = LOAD${width}(row + ${e});
                ${stored(f"v{e}.even", f"window[t][{e // 2}]", width // 2)};
                ${stored(f"v{e}.odd", f"window[t][WINDOW_W + {e // 2}]", width // 2)};
% endif
% endfor
            }
% endfor
% endif
        }
${unroll}\
        for (int y = 0; y < ${patch_h}; ++y) {
% for v in vectors:
            ${vf} sum${v} = acc[y][${v}];
% endfor
${unroll}\
            for (int i = 0; i < TAPS_H; ++i) {
                const int t = y * STEP_H + i * TAP_STEP_H - LOWEST_TAP_H;
                __global const elem_t *taps =
                    weights + d * WEIGHT_IN + i * KERNEL_STEP_H * KERNEL_W;
% for s, start in enumerate(taps):
                const float tap${s} = LOAD1(taps + ${s} * KERNEL_STEP_W);
% for v in vectors:
                sum${v} = (${vf})(tap${s}) * ${loaded(f"window[t][{start + v * vec}]")} + sum${v};
% endfor
% endfor
            }
% for v in vectors:
            acc[y][${v}] = sum${v};
% endfor
        }
    }

${unroll}\
    for (int y = 0; y < ${patch_h}; ++y) {
        __global elem_t *row = out + y * STORE_STEP_H * WRITTEN_W;
        if (row0 + y >= RESULTS_H) {
            continue;
        }
% for v in vectors:
        const ${vf} value${v} = ACT(acc[y][${v}]${added});
% endfor
% if guarded:
% for x in range(patch_w):
        if (column * ${patch_w} + ${x} < RESULTS_W) {
            STORE1(${lanes(f"value{x // vec}", x % vec, 1, vec)}, row + ${x * store_step});
        }
% endfor
% else:
% for block in blocks:
        ${branch(loop.first, block.columns)}{
% for x, width in block.stores:
            STORE${width}(
                ${lanes(f"value{x // vec}", x % vec, width, vec)}, row + ${x * store_step});
% endfor
        }
% endfor
% endif
    }
}
