<%doc>
Gradient of the weights in registers for CPUs, of images in channels_last: vector lanes are input channels.

Images, gradients and weights are read and written as they lie, so nothing is packed. A work-item has
vecs * vec input channels, one row of taps, and loop_k blocks of item_k output channels. It goes through
the rows of y tile by tile, and through its blocks for each tile, which the nearest cache holds
meanwhile. The sums of a block are in registers during a tile, else in private memory. Vectors of x
under each tap meet elements of y as broadcasts. Positions whose taps lie in the padding have loops of
their own that leave those taps out. The last blocks of channels begin earlier where they would not
be whole.

sizes               names and values of the problem's sizes
given               names of those that are arguments, since the batch is free
runs                neighbouring positions of a row that reach the same taps
taps                taps of a row
vec, vecs           lanes of a vector; vectors of input channels
item_k, loop_k      output channels of a block; blocks of a work-item
tile                positions of a tile: whole rows, or a part of one
store_depths        text of the function that stores weights by their strides
split               slices of rows, each of which writes a plane of sums (summed by sum_planes)
</%doc>
<%!
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    width = sizes["RESULTS_W"]
    chunk, rows = min(width, tile), max(tile // width, 1)
    block = vec * vecs
    strides = ("w_filter", "w_depth", "w_row", "w_column") if split == 1 else ()
    filter_step, row_step, column_step = (
        (strides[0], *strides[2:]) if strides else ("FILTER", "TAPS_W * DEPTH", "DEPTH")
    )
    out_type = "float" if split > 1 else "elem_t"
    places = [(i, s, u) for i in range(item_k) for s in range(taps) for u in range(vecs)]
    def place(i, s, u):
        return f"sums + ({(i * taps + s) * vecs + u} + k * {len(places)}) * {vec}"
%>\
${preamble}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define BLOCKS ((DEPTH + ${block - 1}) / ${block})
#define FILTER (DEPTH * TAPS_H * TAPS_W)
#define X_PIXEL (GROUPS * DEPTH)
#define Y_PIXEL (GROUPS * CHANNELS)

% if strides:
${store_depths}
% endif
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_pixels_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out${"".join(f", const long {name}" for name in strides)}${"".join(f", const int {name}" for name in given)})
{
    const int tap_row = (int)get_global_id(0) % TAPS_H;
    const int block = (int)get_global_id(0) / TAPS_H % BLOCKS, group = (int)get_global_id(0) / TAPS_H / BLOCKS;
    const int depth = min(block * ${block}, DEPTH - ${block});
    const int first_channel = (int)get_global_id(1) * ${item_k * loop_k};
% if split > 1:
    const int plane = get_global_id(2);
    const int first_row = plane * ROWS_PER_PLANE;
    const int end_row = min(first_row + ROWS_PER_PLANE, ROWS);
% else:
    const int first_row = 0;
    const int end_row = ROWS;
% endif
    y += offset_y + group * CHANNELS;
    x += offset_x + group * DEPTH + depth;

    float sums[${loop_k * len(places) * vec}] __attribute__((aligned(64)));
    for (int i = 0; i < ${loop_k * len(places)}; ++i) {
        vstore${vec}((${vf})(0.0f), i, sums);
    }
    for (int row0 = first_row; row0 < end_row; row0 += ${rows}) {
% if chunk < width:
    for (int q0 = 0; q0 < RESULTS_W; q0 += ${chunk}) {
% endif
        for (int k = 0; k < ${loop_k} && first_channel + k * ${item_k} < CHANNELS; ++k) {
            const int channel = min(first_channel + k * ${item_k}, CHANNELS - ${item_k});
% for i, s, u in places:
            ${vf} acc${i}_${s}_${u} = vload${vec}(0, ${place(i, s, u)});
% endfor
            for (int row = row0; row < min(row0 + ${rows}, end_row); ++row) {
                const int h = row % RESULTS_H * STEP_H + tap_row * TAP_STEP_H + ORIGIN_H;
                if (h < 0 || h >= READ_H) {
                    continue;
                }
                __global const elem_t *y_row = y + row * (long)RESULTS_W * Y_PIXEL + channel;
                __global const elem_t *x_row = x + ((row / RESULTS_H * READ_H + h) * (long)READ_W + ORIGIN_W) * X_PIXEL;
% for run in runs:
<% first, end = run.span[0], run.span[-1] + 1 %>\
                for (int q = ${f"max({first}, q0)" if chunk < width else first}; q < ${f"min({end}, q0 + {chunk})" if chunk < width else end}; ++q) {
% for s in run.reached:
% for u in range(vecs):
                    const ${vf} x${s}_${u} = LOAD${vec}(x_row + (q * STEP_W + ${s} * TAP_STEP_W) * (long)X_PIXEL + ${u * vec});
% endfor
% endfor
% for i in range(item_k):
                    const float y${i} = LOAD1(y_row + q * (long)Y_PIXEL + ${i});
% for s in run.reached:
% for u in range(vecs):
                    acc${i}_${s}_${u} = y${i} * x${s}_${u} + acc${i}_${s}_${u};
% endfor
% endfor
% endfor
                }
% endfor
            }
% for i, s, u in places:
            vstore${vec}(acc${i}_${s}_${u}, 0, ${place(i, s, u)});
% endfor
        }
% if chunk < width:
    }
% endif
    }

    out += offset_out + ((long)group * CHANNELS) * ${filter_step} + depth${" * w_depth" if strides else ""} + tap_row * ${row_step};
% if split > 1:
    out += plane * (long)GROUPS * CHANNELS * FILTER;
% endif
    for (int k = 0; k < ${loop_k} && first_channel + k * ${item_k} < CHANNELS; ++k) {
        const long channel = min(first_channel + k * ${item_k}, CHANNELS - ${item_k});
% for i, s, u in places:
<% target = f"out + (channel + {i}) * {filter_step} + {s} * {column_step}" %>\
% if strides:
        store_depths(vload${vec}(0, ${place(i, s, u)}), ${target} + ${u * vec} * w_depth, w_depth);
% else:
        vstore${vec}(vload${vec}(0, ${place(i, s, u)}), 0, ${target} + ${u * vec});
% endif
% endfor
    }
}
