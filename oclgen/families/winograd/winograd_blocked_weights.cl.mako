<%doc>
Winograd gradient of filters for CPUs, of images in channels_last, a block of sums at a time.

A work-item has scratch memory of its own. Piece by piece it takes block_c input channels, block_k
filters and a slice of the tiles. It transforms some tiles of x and of the gradient y, with channels in
the lanes, multiplies them at every point, and adds the products to M. Behind the last tile of the slice
it transforms M back, which gives the gradients of the block's taps. Scratch: V [POINTS][tile][block_c],
Y [POINTS][tile][block_k], M [POINTS][block_k][block_c]. The last blocks of channels begin earlier where
they would not be whole.

sizes               names and values of the problem's sizes
given               names of those that are arguments, since the batch is free
tile                tiles of a step: the terms of a sum in registers
vec, vecs           lanes of a vector; vectors of input channels of a register tile
item_k              filters of a register tile
block_c, block_k    input channels and filters of a block
workers             work-items that share the pieces
split               slices of rows of tiles, each of which writes a plane of sums (summed by sum_planes)
store_depths        text of the function that stores weights by their strides
axes                functions that multiply one axis: x_axis, y_axis, w_axis
blocks              blocks of the filter, each of which has pieces of its own; 1: it is whole
</%doc>
<%!
    from oclgen.families.parts.expressions import load, store
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    piece = f"(piece / {blocks})" if blocks > 1 else "piece"
    strides = ("w_filter", "w_depth", "w_row", "w_column") if split == 1 else ()
    out_type = "float" if split > 1 else "elem_t"
    taps = sizes["KERNEL"]
    cut = blocks > 1
    filter_size = "KERNEL_H * KERNEL_W * CHANNELS" if cut else "KERNEL * KERNEL * CHANNELS"
    shift_h, shift_w = (" + top", " + left") if cut else ("", "")
%>\
${preamble}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define BLOCKS_C ((CHANNELS + ${block_c - 1}) / ${block_c})
#define BLOCKS_K ((FILTERS + ${block_k - 1}) / ${block_k})

${axes}

% if strides:
${store_depths}
% endif
<%
    row = lambda i: f"(top + {i})" if cut else i
    column = lambda j: f"(left + {j})" if cut else j
    tap = lambda i, j: f"((top + {i}) * KERNEL_W + left + {j})" if cut else i * taps + j
%>\
<%def name="transform(name, side, axis, rows, columns, pixel, point, channels)">\
/* ${channels} transformed channels of a tile; `row` and `column` are its first pixel. */
static void ${name}(__global const elem_t *image, const int row, const int column, __global float *to)
{
    for (int first = 0; first < ${channels}; first += ${vec}) {
        const int c = min(first, ${channels - vec}); /* the last vector overlaps the one before */
        ${vf} d[POINTS];
#pragma unroll
        for (int i = 0; i < ${side}; ++i) {
            const bool is_row = (uint)(row + i) < ${rows};
#pragma unroll
            for (int j = 0; j < ${side}; ++j) {
                d[i * IN_TILE + j] = 0.0f;
                if (is_row && (uint)(column + j) < ${columns}) {
                    d[i * IN_TILE + j] = LOAD${vec}(image + ((row + i) * ${columns} + column + j) * ${pixel} + c);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < ${side}; ++j) {
            ${axis}(d + j, IN_TILE);
        }
#pragma unroll
        for (int i = 0; i < IN_TILE; ++i) {
            ${axis}(d + i * IN_TILE, 1);
        }
#pragma unroll
        for (int p = 0; p < POINTS; ++p) {
            ${store(vec, "d[p]", f"to + p * {point} + c")};
        }
    }
}
</%def>\
${transform("x_tile", "IN_TILE", "x_axis", "IN_H", "IN_W", "CHANNELS", "V_POINT", block_c)}
${transform("y_tile", "OUT_TILE", "y_axis", "OUT_H", "OUT_W", "FILTERS", "Y_POINT", block_k)}
/* Adds the products of `count` tiles at one point to M. */
static void add_products(
    __global const float *v, __global const float *y, const int count, __global float *m)
{
    for (int k = 0; k < ${block_k}; k += ${item_k}) {
        for (int c = 0; c < ${block_c}; c += ${vec * vecs}) {
% for i in range(item_k):
% for u in range(vecs):
            ${vf} acc${i}_${u} = 0.0f;
% endfor
% endfor
            for (int t = 0; t < count; ++t) {
% for u in range(vecs):
                const ${vf} v${u} = ${load(vec, f"v + t * {block_c} + c + {u * vec}")};
% endfor
% for i in range(item_k):
                const float y${i} = y[t * ${block_k} + k + ${i}];
% for u in range(vecs):
                acc${i}_${u} = y${i} * v${u} + acc${i}_${u};
% endfor
% endfor
            }
% for i in range(item_k):
% for u in range(vecs):
<% place = f"m + (k + {i}) * {block_c} + c + {u * vec}" %>\
            ${store(vec, f"acc{i}_{u} + {load(vec, place)}", place)};
% endfor
% endfor
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_blocked_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out${"".join(f", const long {name}" for name in strides)},
    __global float *restrict scratch, const long offset_scratch${"".join(f", const int {name}" for name in given)})
{
    const int worker = get_global_id(0);
    __global float *of_x = scratch + offset_scratch + (long)worker * SLOT;
    __global float *of_y = of_x + POINTS * V_POINT;
    __global float *m = of_y + POINTS * Y_POINT;
    x += offset_x;
    y += offset_y;
    for (int piece = worker; piece < BLOCKS_C * BLOCKS_K * ${split * blocks}; piece += ${workers}) {
% if cut:
        const int top = piece % ${blocks} / BLOCKS_W * TAPS, left = piece % ${blocks} % BLOCKS_W * TAPS;
% endif
        const int channel = min(${piece} % BLOCKS_C * ${block_c}, CHANNELS - ${block_c});
        const int filter = min(${piece} / BLOCKS_C % BLOCKS_K * ${block_k}, FILTERS - ${block_k});
        const int plane = ${piece} / (BLOCKS_C * BLOCKS_K);
        const int first = plane * ROWS_PER_PLANE * TILES_W;
        const int end = min((plane + 1) * ROWS_PER_PLANE, ROWS) * TILES_W;
        for (int i = 0; i < POINTS * M_POINT; ++i) {
            m[i] = 0.0f;
        }
        for (int start = first; start < end; start += ${tile}) {
            const int count = min(end - start, ${tile});
            for (int i = 0; i < count; ++i) {
                const int tile_row = (start + i) / TILES_W;
                const int row = tile_row % TILES_H * OUT_TILE, column = (start + i) % TILES_W * OUT_TILE;
                const long image = tile_row / TILES_H;
                x_tile(x + image * (IN_H * IN_W) * CHANNELS + channel, row - PAD_H${shift_h}, column - PAD_W${shift_w}, of_x + i * ${block_c});
                y_tile(y + image * (OUT_H * OUT_W) * FILTERS + filter, row, column, of_y + i * ${block_k});
            }
            for (int p = 0; p < POINTS; ++p) {
                add_products(of_x + p * V_POINT, of_y + p * Y_POINT, count, m + p * M_POINT);
            }
        }
        for (int k = 0; k < ${block_k}; ++k) {
            for (int c = 0; c < ${block_c}; c += ${vec}) {
                ${vf} d[POINTS];
#pragma unroll
                for (int p = 0; p < POINTS; ++p) {
                    d[p] = ${load(vec, f"m + p * M_POINT + k * {block_c} + c")};
                }
#pragma unroll
                for (int j = 0; j < IN_TILE; ++j) {
                    w_axis(d + j, IN_TILE);
                }
#pragma unroll
                for (int i = 0; i < KERNEL; ++i) {
                    w_axis(d + i * IN_TILE, 1);
                }
% if strides:
                __global elem_t *to = out + offset_out + (filter + k) * w_filter + (channel + c) * w_depth;
% else:
                __global float *to = out + offset_out + ((long)plane * FILTERS + filter + k) * (${filter_size}) + channel + c;
% endif
% for i in range(taps):
% for j in range(taps):
% if cut:
                if (top + ${i} < KERNEL_H && left + ${j} < KERNEL_W)
% endif
% if strides:
                store_depths(d[${i} * IN_TILE + ${j}], to + ${row(i)} * w_row + ${column(j)} * w_column, w_depth);
% else:
                ${store(vec, f"d[{i} * IN_TILE + {j}]", f"to + {tap(i, j)} * CHANNELS")};
% endif
% endfor
% endfor
            }
        }
    }
}
