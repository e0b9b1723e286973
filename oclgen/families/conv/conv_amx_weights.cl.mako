<%doc>
Gradient of a convolution's weights in bf16 in the tile registers of AMX.

Tiles are 16 output channels and 16 columns, which are input channels, or input channels under the taps
of a row; a step of the sum is 16 pairs of positions. y and x come packed by `conv_amx_words`, so that
what a tap meets lies at one distance from every position.

A work-item sums loop_m * item_m output channels x `inputs` tiles of columns x taps over a slice of the
positions. It goes over `steps` steps at a time for all taps, so that they stay in the second cache; its
sums wait in private memory.

item_m, item_n      output channels and columns whose sums lie in registers, multiples of 16
loop_m              blocks of item_m output channels
inputs              tiles of columns, each under every tap
steps               steps of positions at a time
rows_together       all taps, else those of a row of the kernel
split               slices of the positions; each writes a plane of sums, which another kernel adds
tiles_m, tiles_n    tiles of a group's output channels and columns
channels, columns, depth
                    output channels, columns and input channels of a group
together            groups of the weights that are one here, whose own sums alone are stored
taps                plane and distance of each tap that no column has
kernel_h, kernel_w  taps of the kernel
planes              of x
steps_of_w          distances in weights by filter, input channel, row and column of taps
strided             these are arguments
gaps                sizes of the axes, where positions between results or beyond images meet taps
preamble, tiles     STORE; the tile registers
</%doc>
<%
    m, n = item_m // 16, item_n // 16
    first_a, first_b = m * n, m * n + m
    places = [(i, j, i * n + j) for i in range(m) for j in range(n)]
    per_row = len(taps) // kernel_h
    own = len(taps) if rows_together else per_row
    pairs = inputs * own
    out_type, stored = ("float", "float") if split > 1 else ("elem_t", "ushort")
    filter_step, depth_step, row_step, column_step = steps_of_w
    squares = together == 1 and columns == depth and own == len(taps) and (strided or not in_pixels)
    at_once = 1 if split > 1 else 2
    strides = ("w_filter", "w_depth", "w_row", "w_column") if strided else ()
%>\
${preamble}
${tiles}
% if squares:
${transpose}
% if split == 1:

// Rounds a vector, and the one behind it for the upper halves.
float16 rounded(const float *from)
{
    ushort both[32];
    STORE16(vload16(0, from), (elem_t *)both);
    STORE16(vload16(1, from), (elem_t *)(both + 16));
    return as_float16(convert_uint16(vload16(0, both)) | convert_uint16(vload16(1, both)) << 16);
}
% endif

% endif
% if gaps:
% for name, value in gaps.items():
#define ${name} ${value}
% endfor

// Sums a channel's gradients times 16 columns over pairs of positions, gaps left out. In a tile's sum
// what lies in a gap is zero, which makes a NaN of an infinity or a NaN of the other operand.
float16 without_gaps(
    __global const elem_t *y, __global const elem_t *x, const int row, const int16 column,
    const int first, const int last, const int apart)
{
    float16 sum = 0.0f;
    for (int i = 2 * first; i < 2 * last && any(isnan(sum) == 0); ++i) {
        const int part = i % 2, position = i / 2 + part * apart, line = position / POSITIONS_W;
        const int h = line % POSITIONS_H, w = position % POSITIONS_W;
        const int read_h = h * STEP_H + row * TAP_STEP_H + ORIGIN_H;
        const int16 read_w = w * STEP_W + column * TAP_STEP_W + ORIGIN_W;
        if (h < RESULTS_H && w < RESULTS_W && read_h >= 0 && read_h < READ_H) {
            elem_t words[32], met[16];
            vstore16(vload16(0, (__global const ushort *)x + i / 2 * 32L), 0, (ushort *)words);
            vstore16(vload16(1, (__global const ushort *)x + i / 2 * 32L), 1, (ushort *)words);
            for (int c = 0; c < 16; ++c) {
                met[c] = words[2 * c + part];
            }
            const float16 added = LOAD1(y + i / 32 * 512L + i % 32) * LOAD16(met) + sum;
            sum = select(sum, added, read_w >= 0 && read_w < READ_W);
        }
    }
    return sum;
}

% endif
constant int taps[][2] = {${", ".join(f"{{{plane}, {distance}}}" for plane, distance in taps)}};

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_amx_weights(
    __global const ushort *restrict y, const long offset_y,
    __global const ushort *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out${"".join(f", const long {name}" for name in strides)},
    const int apart, const int words)
{
    const int first_m = (int)get_global_id(1) % ${-(-tiles_m // (m * loop_m))} * ${m * loop_m};
    const int group = (int)get_global_id(1) / ${-(-tiles_m // (m * loop_m))};
    const int first_n = (int)get_global_id(0) / ${len(taps) // own} * ${inputs};
    const int first_tap = (int)get_global_id(0) % ${len(taps) // own} * ${own};
    const int all_steps = apart / 16, slice = (int)get_global_id(2);
    const int some = (all_steps + ${split - 1}) / ${split};
    const int first = slice * some, last = min(first + some, all_steps);
    y += offset_y + group * ${32 * tiles_m}L * apart;
    x += offset_x + group * ${32 * tiles_n * planes}L * words;

    TILE_REGISTERS;
    float sums[${256 * m * loop_m * pairs}] __attribute__((aligned(64)));
    SET_TILES(16, 64, ${first_a}, ${first_b});
    for (int step = first; step == first || step < last; step += ${steps}) {
        const int end = min(step + ${steps}, last);
        for (int i = 0; i < ${m * loop_m}; i += ${m}) {
% for i in range(m):
            __global const ushort *y${i} = y + min(first_m + i + ${i}, ${tiles_m - 1}) * 32L * apart + step * 512L;
% endfor
            for (int j = 0; j < ${pairs}; j += ${n}) {
% for j in range(n):
<% at = f"min(j + {j}, {pairs - 1})" if pairs % n else f"j + {j}" %>\
                const int pair${j} = ${at}, tap${j} = first_tap + pair${j} % ${own};
                const int tile${j} = min(first_n + pair${j} / ${own}, ${tiles_n - 1});
                __global const ushort *x${j} = x + ((tile${j} * ${planes} + taps[tap${j}][0]) * (long)words + taps[tap${j}][1] + step * 16L) * 32;
% endfor
                if (step == first) {
% for _, _, t in places:
                    TILE_ZERO(${t});
% endfor
                } else {
% for i, j, t in places:
                    TILE_LOAD(${t}, sums + ((i + ${i}) * ${pairs} + pair${j}) * 256, 64);
% endfor
                }
% for i in range(m):
                __global const ushort *a${i} = y${i};
% endfor
                for (int s = step; s < end; ++s) {
% for j in range(n):
                    TILE_LOAD(${first_b + j}, x${j}, 64);
                    x${j} += 512;
% endfor
% for i in range(m):
                    TILE_LOAD(${first_a + i}, a${i}, 64);
                    a${i} += 512;
% for j in range(n):
                    TILE_DOT(${i * n + j}, ${first_a + i}, ${first_b + j});
% endfor
% endfor
                }
% for i, j, t in places:
                TILE_STORE(${t}, sums + ((i + ${i}) * ${pairs} + pair${j}) * 256, 64);
% endfor
            }
        }
    }
    TILES_DONE;

% if gaps:
    for (int t = 0; t < ${m * loop_m * pairs}; ++t) {
        // a NaN makes one of whatever it is added to
        float16 all = 0.0f;
        for (int i = 0; i < 16; ++i) {
            all += vload16(16 * t + i, sums);
        }
        const int pair = t % ${pairs}, tap = first_tap + pair % ${own}, tile = first_n + pair / ${own};
        const int16 columns = tile * 16 + (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        if (!any(isnan(all) && columns < ${columns})) {
            continue;
        }
        for (int i = 0; i < 16; ++i) {
            const float16 sum = vload16(16 * t + i, sums);
            const int channel = (first_m + t / ${pairs}) * 16 + i;
            if (channel < ${channels} && any(isnan(sum) && columns < ${columns})) {
                __global const ushort *met = x + ((tile * ${planes} + taps[tap][0]) * (long)words + taps[tap][1]) * 32;
                const float16 again = without_gaps(
                    (__global const elem_t *)y + channel / 16 * 32L * apart + i * 32, (__global const elem_t *)met,
                    tap / ${per_row}, ${f"columns / {depth}" if columns > depth else f"tap % {per_row}"}, first * 16, last * 16, apart);
                vstore16(select(sum, again, isnan(sum)), 16 * t + i, sums);
            }
        }
    }

% endif
    out += offset_out + group * ${channels}L * ${filter_step};
% if split > 1:
    out += slice * ${channels * groups}L * ${filter_step};
% endif
% if squares:
% if strided:
    if (w_depth == ${own} && w_row == ${kernel_w} && w_column == 1) {
% endif
    // results of a filter's tile lie one behind the other: squares of taps and columns turn
    for (int i = 0; i < ${16 * m * loop_m}; i += ${at_once}) {
        const int channel = first_m * 16 + i;
        for (int b = 0; b < ${inputs} && channel < ${channels}; ++b) {
            const int column = (first_n + b) * 16, count = min(${columns} - column, 16) * ${own};
            const float *of = sums + ((i / 16 * ${pairs} + b * ${own}) * 16 + i % 16) * 16;
            ${stored} line[${at_once}][${16 * own + 16}];
            for (int t = ${(own - 1) // 16 * 16}; count > 0 && t >= 0; t -= 16) {
                float16 square[16];
% for k in range(16):
                square[${k}] = ${"vload16(0, " if split > 1 else "rounded("}of + ${f"min(t + {k}, {own - 1})" if own > 16 else min(k, own - 1)} * 256);
% endfor
                transpose(square);
                // lanes past the last tap are written over by what follows
% for k in range(16):
% if split > 1:
                vstore16(square[${k}], 0, line[0] + ${k * own} + t);
% else:
                vstore16(convert_ushort16(as_uint16(square[${k}])), 0, line[0] + ${k * own} + t);
                vstore16(convert_ushort16(as_uint16(square[${k}]) >> 16), 0, line[1] + ${k * own} + t);
% endif
% endfor
            }
            for (int o = 0; o < ${at_once} && channel + o < ${channels}; ++o) {
                __global ${stored} *w = (__global ${stored} *)(out + (channel + o) * (long)${filter_step} + column * ${depth_step});
                int j = 0;
                for (; j + 16 <= count; j += 16) {
                    vstore16(vload16(0, line[o] + j), 0, w + j);
                }
                for (; j < count; ++j) {
                    w[j] = line[o][j];
                }
            }
        }
    }
% endif
% if squares and strided:
    return;
    }
% endif
% if strided or not squares:
    for (int i = 0; i < ${256 * m * loop_m * pairs}; i += 16) {
        const int channel = (first_m + i / ${256 * pairs}) * 16 + i / 16 % 16;
        const int pair = i / 256 % ${pairs}, tap = first_tap + pair % ${own};
        const int column = (first_n + pair / ${own}) * 16;
% if together == 1 and in_pixels and columns == depth:
        if (${"w_depth == 1 && " if strided else ""}channel < ${channels} && column + 16 <= ${columns}) {
            __global ${out_type} *w = out + channel * (long)${filter_step} + column + tap / ${per_row} * ${row_step} + tap % ${per_row} * ${column_step};
            ${"vstore16(vload16(0, sums + i), 0, w)" if split > 1 else "STORE16(vload16(0, sums + i), w)"};
            continue;
        }
% endif
        for (int j = 0; j < 16; ++j) {
            if (channel < ${channels} && column + j < ${columns}) {
                const int ${"of_all" if together > 1 else "into"} = (column + j) % ${depth}, s = ${f"(column + j) / {depth}" if columns > depth else f"tap % {per_row}"};
% if together > 1:
                const int into = of_all % ${depth // together};
                if (of_all / ${depth // together} != channel / ${channels // together}) {
                    continue;
                }
% endif
                __global ${out_type} *w = out + channel * (long)${filter_step} + into * ${depth_step} + tap / ${per_row} * ${row_step} + s * ${column_step};
                ${"*w = sums[i + j]" if split > 1 else "STORE1(sums[i + j], w)"};
            }
        }
    }
% endif
}
