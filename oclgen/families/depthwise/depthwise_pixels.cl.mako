<%doc>
Depthwise correlation in channels_last, one result for each channel.

A work-item computes patch_h x patch_w results of vec channels, neighbours of neighbouring work-items.
It first copies what they read to a window in private memory, zero where the padding is. In a strided
bwd_data it computes that many of each phase: all phases read the same window, and together they are a
patch of the output without gaps.

Where vec does not divide the channels, the last vector begins vec channels before their end. It computes
channels of the vector before it, too, and stores its own alone. A row of the patch is summed and stored
before the next one: its sums stay in registers, however many rows there are.

Weights of neighbouring channels lie a filter apart, so that a load of one tap by neighbours meets a
cache line for each. With local_c > 1 a work-group has a block of channels: it copies their weights to
local memory, where a tap's neighbours are neighbours, and then computes several patches.

dtype, activation   storage type of input, weights, output, bias (accumulation is fp32); epilogue
sizes               names and values of the correlations' and the window's sizes
given               names of sizes that are arguments, since the batch is free
patch_h, patch_w    results per work-item and phase
vec                 channels per work-item, `vec_c`
last                (first lane, width) of each store of a last vector that overlaps; none: all are alike
local_size          work-items per group
local_c, rounds     work-items along channels, and patches of each work-item; 1 of each: weights are
                    read where they lie
rows, cols          for each phase along an axis the taps: place in the kernel, and in the window
store_h, store_w    distance of a phase's neighbouring results in the output
kernel_w            taps of a row of the kernel
looped              rows of results and of taps are loops; else all taps of a patch are written out
step_w              distance of the columns that neighbouring results read
bias, residual      add bias[channel], and what lies as the output does
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_residual
    from oclgen.families.parts.expressions import lanes_of, vector_of
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
    staged = local_c > 1
    local_p = local_size // local_c
    def tap(at):
        if staged:
            return f"*(__local const {vf} *)(filters + {at} * PITCH)"
        return vector_of(f"LOAD1(weights + {v} * TAPS + {at})" for v in range(vec))
%>\
<%def name="stores(pieces)">\
#pragma unroll
                for (int x = 0; x < ${patch_columns}; ++x) {
                    if (column * ${patch_columns} + x < WRITTEN_W) {
                        const long at = begin + x;
                        const ${vf} value = acc[x]${" + shift" if bias else ""}${plus_residual(residual, vec, "out + at * CHANNELS")};
% if pieces == [(0, vec)]:
                        STORE${vec}(ACT(value), out + at * CHANNELS);
% else:
                        const ${vf} stored = ACT(value);
% for first, width in pieces:
                        STORE${width}(${lanes_of("stored", vec, first, width)}, out + at * CHANNELS + ${first});
% endfor
% endif
                    }
                }
</%def>\
${preamble}
${activation}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define VECTORS ${f"((CHANNELS + {vec - 1}) / {vec})" if last else f"(CHANNELS / {vec})"}
% if staged:
#define PITCH ${(local_c + 1) * vec}
% endif

__kernel __attribute__((reqd_work_group_size(${f"{local_c}, {local_p}, 1" if staged else f"{local_size}, 1, 1"})))
void depthwise_pixels(
    __global const elem_t *restrict in, const long offset_in,
    __global const elem_t *restrict weights, const long offset_weights,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
% if staged:
    __local float weights_of[TAPS * PITCH] __attribute__((aligned(${4 * vec})));
    const int block = get_group_id(0) * ${local_c * vec}, some = min(${local_c * vec}, CHANNELS - block);
    weights += offset_weights + block * TAPS;
    for (int i = get_local_id(1) * ${local_c} + get_local_id(0); i < some * TAPS; i += ${local_size}) {
        weights_of[i % TAPS * PITCH + i / TAPS] = LOAD1(weights + i);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int channel = block + get_local_id(0) * ${vec};
    if (channel >= CHANNELS) {
        return;
    }
    __local const float *filters = weights_of + get_local_id(0) * ${vec};
    in += offset_in + channel;
    out += offset_out + channel;
% if bias:
    const ${vf} shift = LOAD${vec}(bias + offset_bias + channel);
% endif
% if residual:
    residual += offset_residual + channel;
% endif
    const int begin = get_group_id(1) * ${local_p * rounds} + get_local_id(1);
    const int end = min(begin + ${local_p * rounds}, COLUMNS * BANDS * BATCH);
    for (int patch = begin; patch < end; patch += ${local_p}) {
    const int column = patch % COLUMNS;
    const int band = patch / COLUMNS % BANDS;
    const int image = patch / (COLUMNS * BANDS);
% else:
    const int id = get_global_id(0);
% if last:
    const int channel = min(id % VECTORS * ${vec}, CHANNELS - ${vec});
% else:
    const int channel = id % VECTORS * ${vec};
% endif
    const int column = id / VECTORS % COLUMNS;
    const int band = id / (VECTORS * COLUMNS) % BANDS;
    const int image = id / (VECTORS * COLUMNS * BANDS);
    if (image >= BATCH) {
        return;
    }
% endif
    const int h0 = band * ${patch_h} * STEP_H + WINDOW_FIRST_H;
    const int w0 = column * ${patch_w} * STEP_W + WINDOW_FIRST_W;
    const long corner = ((long)image * READ_H + h0) * READ_W + w0;
% if not staged:
    in += offset_in + channel;
    weights += offset_weights + channel * TAPS;
% endif

    ${vf} window[WINDOW_H][WINDOW_W];
% if staged:
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
% else:
    // elements of a window that lies inside the image are not tested one by one
    if (h0 >= 0 && h0 + WINDOW_H <= READ_H && w0 >= 0 && w0 + WINDOW_W <= READ_W) {
#pragma unroll
        for (int t = 0; t < WINDOW_H; ++t) {
#pragma unroll
            for (int e = 0; e < WINDOW_W; ++e) {
                window[t][e] = LOAD${vec}(in + (corner + t * READ_W + e) * CHANNELS);
            }
        }
    } else {
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
    }
% endif
% if staged:
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

    const int row0 = band * ${patch_rows}, column0 = column * ${patch_columns};
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
% else:
% if bias:
    const ${vf} shift = LOAD${vec}(bias + offset_bias + channel);
% endif
    out += offset_out + channel;
% if residual:
    residual += offset_residual + channel;
% endif
    ${vf} tap_of[TAPS];
    for (int i = 0; i < TAPS; ++i) {
        tap_of[i] = ${tap("i")};
    }
${"" if looped else "#pragma unroll\n"}\
    for (int y = 0; y < ${patch_h}; ++y) {
% for phase_h in range(len(rows)):
<% row = " + ".join([f"band * {patch_rows}", f"y * {store_h}" if store_h > 1 else "y", *([str(phase_h)] if phase_h else [])]) %>\
        {
            const int row = ${row};
            ${vf} acc[${patch_columns}];
#pragma unroll
            for (int x = 0; x < ${patch_columns}; ++x) {
                acc[x] = 0.0f;
            }
% if looped and rows[phase_h]:
<%
    kernel_row, place = rows[phase_h][0]
    kernel_apart, apart = (b - a for a, b in zip(rows[phase_h][0], rows[phase_h][-1]))
    others = max(len(rows[phase_h]) - 1, 1)
    read = {}
    for phase_w, of_column in enumerate(cols):
        for column, in_column in of_column:
            for x in range(patch_w):
                read.setdefault(x * step_w + in_column, []).append((x * store_w + phase_w, column))
%>\
            for (int i = 0; i < ${len(rows[phase_h])}; ++i) {
                const ${vf} *taps = tap_of + (i * ${kernel_apart // others} + ${kernel_row}) * ${kernel_w};
                const ${vf} *elements = window[y * STEP_H + i * ${apart // others} + ${place}];
% for element, sums in sorted(read.items()):
                {
                    const ${vf} element = elements[${element}];
% for x, tap_column in sums:
                    acc[${x}] += taps[${tap_column}] * element;
% endfor
                }
% endfor
            }
% elif not looped:
% for of_h, phase_w, at, in_row, in_column in taps:
% if of_h == phase_h:
#pragma unroll
            for (int x = 0; x < ${patch_w}; ++x) {
                acc[x * ${store_w} + ${phase_w}] +=
                    tap_of[${at}] * window[y * STEP_H + ${in_row}][x * STEP_W + ${in_column}];
            }
% endif
% endfor
% endif
            const long begin = ((long)image * WRITTEN_H + row) * WRITTEN_W + column * ${patch_columns};
            if (row >= WRITTEN_H) {
                continue;
            }
% if last:
            if (channel == CHANNELS - ${vec}) {
${stores(last)}\
            } else {
${stores([(0, vec)])}\
            }
% else:
${stores([(0, vec)])}\
% endif
        }
% endfor
    }
% endif
% if staged:
    }
% endif
}
