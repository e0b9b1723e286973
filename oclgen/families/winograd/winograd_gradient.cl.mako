<%doc>
Inverse transform of the gradient of a filter: w = A^T M A, from M [POINTS][filters][channels].

taps          rows and columns of a filter, or of a block of it
cut           the filter is cut into blocks: there are CHANNELS for each of the SOURCE_CHANNELS and each block
dtype         storage type of w; M is fp32
strided       the strides of w are arguments
given         names of sizes that are arguments
local_c       work-items per group, along pairs of filter and channel
output_axis   the function that multiplies one axis by A^T
</%doc>
<% place = "r * w_row + s * w_column" if strided else f"r * {'KERNEL_W' if cut else taps} + s" %>\
${preamble}
${defines}

${output_axis}

__kernel __attribute__((reqd_work_group_size(${local_c}, 1, 1)))
void winograd_gradient(
    __global const float *restrict m, const long offset_m,
    __global elem_t *restrict w, const long offset_w${"".join(f", const long {name}" for name in ("w_filter", "w_channel", "w_row", "w_column") if strided)}${"".join(f", const int {name}" for name in given)})
{
    const int pair = get_global_id(0);
    if (pair >= FILTERS * CHANNELS) {
        return;
    }
    float d[POINTS];
    __global const float *in = m + offset_m + pair;
#pragma unroll
    for (int p = 0; p < POINTS; ++p, in += FILTERS * CHANNELS) {
        d[p] = *in;
    }
#pragma unroll
    for (int j = 0; j < IN_TILE; ++j) {
        output_axis(d + j, IN_TILE);
    }
% if cut:
    const int k = pair / CHANNELS, c = pair % CHANNELS % SOURCE_CHANNELS;
    const int block = pair % CHANNELS / SOURCE_CHANNELS;
    const int row = block / BLOCKS_W * TAPS, column = block % BLOCKS_W * TAPS;
% endif
% if cut and strided:
    __global elem_t *out = w + offset_w + k * w_filter + c * w_channel + row * w_row + column * w_column;
% elif cut:
    __global elem_t *out =
        w + offset_w + (((long)k * SOURCE_CHANNELS + c) * KERNEL_H + row) * KERNEL_W + column;
% elif strided:
    __global elem_t *out = w + offset_w + pair / CHANNELS * w_filter + pair % CHANNELS * w_channel;
% else:
    __global elem_t *out = w + offset_w + (long)pair * ${taps**2};
% endif
#pragma unroll
    for (int r = 0; r < ${taps}; ++r) {
        output_axis(d + r * IN_TILE, 1);
#pragma unroll
        for (int s = 0; s < ${taps}; ++s) {
% if cut:
            if (row + r < KERNEL_H && column + s < KERNEL_W) {
                STORE1(d[r * IN_TILE + s], out + ${place});
            }
% else:
            STORE1(d[r * IN_TILE + s], out + ${place});
% endif
        }
    }
}
