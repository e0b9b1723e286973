<%doc>
Depthwise correlation in channels_last, one result for each channel.

A work-item computes patch_h x patch_w results of vec channels, neighbours of neighbouring
work-items. It first copies what they read to a window in private memory, zero where the padding is.
In a strided bwd_data results are so many of each phase: they read the same window, and together
they are a patch of the output without gaps.

dtype, activation   storage type of input, weights, output, bias (accumulation is fp32); epilogue
sizes               names and values of the correlations' and the window's sizes
patch_h, patch_w    results per work-item and phase
vec                 channels per work-item, `vec_c`; it divides them
local_size          work-items per group
rows, cols          for each phase along an axis the taps: place in the kernel, and in the window
store_h, store_w    distance of a phase's neighbouring results in the output
kernel_w            taps of a row of the kernel
bias, residual      add bias[channel], and what lies as the output does
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_residual
    from oclgen.families.parts.expressions import vector_of
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    patch_rows, patch_columns = patch_h * store_h, patch_w * store_w
    taps = [
        (phase_h, phase_w, row * kernel_w + column, in_row, in_column)
        for phase_h, of_row in enumerate(rows) for row, in_row in of_row
        for phase_w, of_column in enumerate(cols) for column, in_column in of_column
    ]
    def tap(at):
        return vector_of(f"LOAD1(weights + {v} * TAPS + {at})" for v in range(vec))
%>\
${preamble}
${activation}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define VECTORS (CHANNELS / ${vec})

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void depthwise_pixels(
    __global const elem_t *restrict in, const long offset_in,
    __global const elem_t *restrict weights, const long offset_weights,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out)
{
    const int id = get_global_id(0);
    const int channel = id % VECTORS * ${vec};
    const int column = id / VECTORS % COLUMNS;
    const int band = id / (VECTORS * COLUMNS) % BANDS;
    const int image = id / (VECTORS * COLUMNS * BANDS);
    if (image >= BATCH) {
        return;
    }
    const int h0 = band * ${patch_h} * STEP_H + WINDOW_FIRST_H;
    const int w0 = column * ${patch_w} * STEP_W + WINDOW_FIRST_W;
    const long corner = ((long)image * READ_H + h0) * READ_W + w0;
    in += offset_in + channel;
    weights += offset_weights + channel * TAPS;

    ${vf} window[WINDOW_H][WINDOW_W];
#pragma unroll
    for (int t = 0; t < WINDOW_H; ++t) {
#pragma unroll
        for (int e = 0; e < WINDOW_W; ++e) {
            const bool inside = h0 + t >= 0 && h0 + t < READ_H && w0 + e >= 0 && w0 + e < READ_W;
            window[t][e] = 0.0f;
            if (inside) {
                window[t][e] = LOAD${vec}(in + (corner + t * READ_W + e) * CHANNELS);
            }
        }
    }
    ${vf} acc[${patch_rows}][${patch_columns}];
#pragma unroll
    for (int y = 0; y < ${patch_rows}; ++y) {
#pragma unroll
        for (int x = 0; x < ${patch_columns}; ++x) {
            acc[y][x] = 0.0f;
        }
    }
% for phase_h, phase_w, at, in_row, in_column in taps:
    {
        const ${vf} tap = ${tap(at)};
#pragma unroll
        for (int y = 0; y < ${patch_h}; ++y) {
#pragma unroll
            for (int x = 0; x < ${patch_w}; ++x) {
                acc[y * ${store_h} + ${phase_h}][x * ${store_w} + ${phase_w}] +=
                    tap * window[y * STEP_H + ${in_row}][x * STEP_W + ${in_column}];
            }
        }
    }
% endfor

% if bias:
    const ${vf} shift = LOAD${vec}(bias + offset_bias + channel);
% endif
    const int row0 = band * ${patch_rows}, column0 = column * ${patch_columns};
    out += offset_out + channel;
% if residual:
    residual += offset_residual + channel;
% endif
#pragma unroll
    for (int y = 0; y < ${patch_rows}; ++y) {
#pragma unroll
        for (int x = 0; x < ${patch_columns}; ++x) {
            if (row0 + y < WRITTEN_H && column0 + x < WRITTEN_W) {
                const long at = ((long)image * WRITTEN_H + row0 + y) * WRITTEN_W + column0 + x;
                const ${vf} value = acc[y][x]${" + shift" if bias else ""}${plus_residual(residual, vec, "out + at * CHANNELS")};
                STORE${vec}(ACT(value), out + at * CHANNELS);
            }
        }
    }
}
