<%doc>
Depthwise correlation (one input channel per group in fwd, one output channel in bwd_data).

A work-item computes patch_h x patch_w results of one channel, with lanes along the row. It first
copies what they read to a window in private memory, zero where the padding is; columns that are
step apart lie side by side there, so that every tap of every stride is a plain vector load.

In a strided bwd_data a work-item computes patch_h x patch_w results of each phase: all phases read the
same window, and together they are a patch of the output without gaps, whose rows are stored at once.

dtype, activation   storage type of input, weights, output, bias (accumulation is fp32); epilogue
sizes               names and values of the correlations' and the window's sizes
given               names of sizes that are arguments, since the batch is free
patch_h, patch_w    results per work-item and phase
vec                 lanes of a vector
guarded             test each element of the window for the padding at run time (GPUs); else each
                    of the blocks of columns that differ at the edges has its own text (CPUs)
local_size          work-items per group
results             a row of the patch: see `Row`
blocks              that text: which columns (None: all others), elements to copy, columns to store
rows, cols          for each phase along an axis the taps: place in the kernel, and in the window
step_w              distance of the columns that neighbouring results read
store_h, store_w    distance of a phase's neighbouring results in the output
written_w           columns of the output
elem_bytes          bytes of an element in memory
bias, residual      add bias[channel], and what lies as the output does
</%doc>
<%!
    from oclgen.families.parts.expressions import branch, read_item
    from oclgen.render import vector
%>\
<%namespace name="window" file="depthwise_window.cl.mako"/>\
<%
    vf = vector(vec)
    vectors = results.vectors
    unroll = "#pragma unroll\n" if guarded else ""
    added = " + LOAD1(bias + offset_bias + channel)" if bias else ""
    window_w = sizes["WINDOW_W"]
    patch_rows, patch_columns = patch_h * store_h, patch_w * store_w
    # of a guarded row: rows of the output consist of whole vectors
    run = next(width for width in (4, 2, 1) if patch_columns % width == 0 and written_w % width == 0)
%>\
${preamble}
${activation}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor

<%def name="products(row, row_taps)">\
<%
    kernel_row, place = row_taps[0]
    kernel_apart, apart = (b - a for a, b in zip(row_taps[0], row_taps[-1]))
    others = max(len(row_taps) - 1, 1)
    acc_row = f"acc[y * {store_h} + {row}]" if store_h > 1 else "acc[y]"
    sums = [(col, v, col * len(vectors) + v) for col, taps in enumerate(cols) if taps for v in vectors]
%>\
            {
% for _, _, n in sums:
                ${vf} sum${n} = ${acc_row}[${n}];
% endfor
${unroll}\
                for (int i = 0; i < ${len(row_taps)}; ++i) {
                    const int t = y * STEP_H + i * ${apart // others} + ${place};
                    __global const elem_t *taps =
                        weights + d * WEIGHT_IN + (i * ${kernel_apart // others} + ${kernel_row}) * KERNEL_W;
% for taps in cols:
% for at, _ in taps:
                    const float tap${at} = LOAD1(taps + ${at});
% endfor
% endfor
% for col, v, n in sums:
% for at, offset in cols[col]:
<% place = offset % step_w * window_w + offset // step_w + v * vec %>\
                    sum${n} = (${vf})(tap${at}) * ${read_item(vec, f"window[t][{place}]")} + sum${n};
% endfor
% endfor
                }
% for _, _, n in sums:
                ${acc_row}[${n}] = sum${n};
% endfor
            }
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void depthwise(
    __global const elem_t *restrict in, const long offset_in,
    __global const elem_t *restrict weights, const long offset_weights,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    const int id = get_global_id(0);
    const int column = id % COLUMNS;
    const int band = id / COLUMNS % BANDS;
    const int channel = id / (COLUMNS * BANDS) % (GROUPS * CHANNELS);
    const int image = id / (COLUMNS * BANDS * GROUPS * CHANNELS);
    const int group = channel / CHANNELS;
    if (image >= BATCH) {
        return;
    }
    const int h0 = band * ${patch_h} * STEP_H + WINDOW_FIRST_H;
    const int w0 = column * ${patch_w} * STEP_W + WINDOW_FIRST_W;
    in += offset_in + (long)(image * GROUPS + group) * DEPTH * READ_H * READ_W + w0;
    weights += offset_weights + group * WEIGHT_GROUP + channel % CHANNELS * WEIGHT_OUT;
    out += offset_out;
% if residual:
    residual += offset_residual
        + (long)(image * GROUPS * CHANNELS + channel) * WRITTEN_H * WRITTEN_W
        + band * ${patch_rows} * WRITTEN_W + column * ${patch_columns};
% endif
% if guarded and run > 1:
    const bool aligned = IS_ALIGNED(out, 0, ${elem_bytes}, ${run})${f" && IS_ALIGNED(residual, 0, {elem_bytes}, {run})" if residual else ""};
% endif
    out += (long)(image * GROUPS * CHANNELS + channel) * WRITTEN_H * WRITTEN_W
        + band * ${patch_rows} * WRITTEN_W + column * ${patch_columns};

    float window[WINDOW_H][STEP_W * WINDOW_W];
    ${vf} acc[${patch_rows}][${len(cols) * len(vectors)}];
${unroll}\
    for (int t = 0; t < WINDOW_H; ++t) {
${unroll}\
        for (int e = 0; e < STEP_W * WINDOW_W; ++e) {
            window[t][e] = 0.0f;
        }
    }
${unroll}\
    for (int y = 0; y < ${patch_rows}; ++y) {
% for v in range(len(cols) * len(vectors)):
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
${window.copied(step_w)}\
        }
${unroll}\
        for (int y = 0; y < ${patch_h}; ++y) {
% for row, row_taps in enumerate(rows):
% if row_taps:
${products(row, row_taps)}\
% endif
% endfor
        }
    }

${unroll}\
    for (int y = 0; y < ${patch_rows}; ++y) {
        __global elem_t *row = out + y * WRITTEN_W;
        if (band * ${patch_rows} + y >= WRITTEN_H) {
            continue;
        }
% for v in range(len(cols) * len(vectors)):
        const ${vf} value${v} = ${"" if residual else "ACT"}(acc[y][${v}]${added});
% endfor
% if guarded:
% for x in range(0, min(patch_columns, written_w), run):
        if (column * ${patch_columns} + ${x} < WRITTEN_W) {
% if run == 1:
            STORE1(${results.finished(x, 1, results.columns(x, 1))}, row + ${x});
% else:
            const float${run} stored = ${results.columns(x, run)};
            if (aligned) {
                ALIGNED_STORE${run}(${results.finished(x, run, "stored", "ALIGNED_LOAD")}, row + ${x});
            } else {
                STORE${run}(${results.finished(x, run, "stored")}, row + ${x});
            }
% endif
        }
% endfor
% else:
% for block in blocks:
        ${branch(loop.first, block.columns)}{
% for x, width in block.stores:
            STORE${width}(${results.finished(x, width, results.columns(x, width))}, row + ${x});
% endfor
        }
% endfor
% endif
    }
}
