<%doc>
Gradient of the weights in registers for CPUs: vector lanes are output channels, no local memory.

Images, gradients and weights lie as planes, or as pixels (channels_last). Weights of the latter
have strides, which are arguments; planes of sums then have the channels of a tap side by side.

A work-item sums vecs * vec output channels x item_c input channels x all taps of one kernel row
over the rows of one plane. y, packed so that lanes are channels, is loaded as vectors and each
element of x is broadcast against them. Positions whose taps lie in the padding have loops of their
own that leave those taps out.

dtype               storage type of x and w (accumulation is fp32)
sizes               names and values of the problem's sizes
given               names of those that are arguments, since the batch is free
runs                neighbouring positions of a row that reach the same taps
item_c              input channels per work-item
vec, vecs           lanes of a vector; vectors of output channels per work-item
unroll              positions that are summed over per loop iteration
split               planes over which rows of all images are split (summed by sum_planes)
outputs_fastest     neighbouring work-items differ in output channels, else in input channels
in_pixels           images are pixels of channels, and weights have strides
in_place            y is read as it lies in pixels: the last block of output channels begins earlier
edge                item_c does not divide the input channels of a group
widened             x is fp32 whatever the storage type of w is
pairs               None, or the text of `conv_pairs_weights`' instruction: positions are pairs of
                    neighbours along a row, words of bf16 whose products it adds. Rows of words of x
                    begin with the padding, so that no run leaves out a tap
alone               the last pair of a row, which is a run, has one position: its neighbour in x is left
                    out, since zero times an infinity is no number
</%doc>
<%!
    from oclgen.families.parts.expressions import load
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    output_dim, input_dim = (0, 1) if outputs_fastest else (1, 0)
    out_type = "float" if split > 1 else "elem_t"
    word, words = ("uint", vector(vec, "uint")) if pairs else ("float", vf)
    y = "y" if in_place else "packed"
    def load_y(u):
        return f"LOAD{vec}(y + at_y + {u * vec})" if in_place else load(vec, f"packed + at_y + {u * vec}")
    if pairs:
        x_row, x_step = "image * DEPTH * X_PLANE + h * X_ROW", "2 * STEP_W"
        x_channel, x_tap = " * X_PLANE", "TAP_STEP_W"
    elif in_pixels:
        x_row = "((row / RESULTS_H * READ_H + h) * (long)READ_W + ORIGIN_W) * PIXEL + group * DEPTH"
        x_step, x_channel, x_tap = "STEP_W * PIXEL", "", "TAP_STEP_W * PIXEL"
    else:
        x_row, x_step = "image * DEPTH * READ_PLANE + h * READ_W + ORIGIN_W", "STEP_W"
        x_channel, x_tap = " * READ_PLANE", "TAP_STEP_W"
    strides = ("w_filter", "w_depth", "w_row", "w_column") if in_pixels and split == 1 else ()
    if strides:
        filter_step, depth_step, row_step, column_step = strides
    elif in_pixels:
        filter_step, depth_step, row_step, column_step = "FILTER", "1", "TAPS_W * DEPTH", "DEPTH"
%>\
${preamble}
% if pairs:
${pairs}
% endif

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define BLOCK ${vec * vecs}
#define BLOCKS ((CHANNELS + BLOCK - 1) / BLOCK)
#define READ_PLANE (READ_H * READ_W)
#define FILTER (DEPTH * TAPS_H * TAPS_W)
% if in_pixels:
#define PIXEL (GROUPS * DEPTH)
% endif
% if in_place:
#define Y_PIXEL (GROUPS * CHANNELS)
% endif

// Stores one weight of up to ${vec} output channels.
void scatter(const ${vf} value, __global ${out_type} *out, ${"const long apart, " if strides else ""}int channels)
{
    float lanes[${vec}];
    ${"lanes[0] = value" if vec == 1 else f"vstore{vec}(value, 0, lanes)"};
    for (int i = 0; i < min(channels, ${vec}); ++i) {
<% place = "i * apart" if strides else "i * FILTER" %>\
        ${f"out[{place}] = lanes[i]" if split > 1 else f"STORE1(lanes[i], out + {place})"};
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${kernel}(
    __global const ${"elem_t" if in_place else word} *restrict ${y}, const long offset_${y},
    __global const ${'uint' if pairs else 'float' if widened else 'elem_t'} *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out${"".join(f", const long {name}" for name in strides)}${"".join(f", const int {name}" for name in given)})
{
    const int block = (int)get_global_id(${output_dim}) % BLOCKS;
    const int group = (int)get_global_id(${output_dim}) / BLOCKS;
% if in_place:
    const int channel = min(block * BLOCK, CHANNELS - BLOCK);
% endif
    const int tap_row = (int)get_global_id(${input_dim}) % TAPS_H;
    const int first_c = (int)get_global_id(${input_dim}) / TAPS_H * ${item_c};
% for i in range(item_c):
    const int c${i} = ${f"min(first_c + {i}, DEPTH - 1)" if edge else f"first_c + {i}"};
% endfor
% if split > 1:
    const int plane = get_global_id(2);
    const int first_row = plane * ROWS_PER_PLANE;
    const int end_row = min(first_row + ROWS_PER_PLANE, ROWS);
% else:
    const int first_row = 0;
    const int end_row = ROWS;
% endif
    ${y} += offset_${y};
    x += offset_x;
% for i in range(item_c):
% for s in range(taps):
    ${vf} ${", ".join(f"acc{i}_{s}_{u} = 0.0f" for u in range(vecs))};
% endfor
% endfor

    for (int row = first_row; row < end_row; ++row) {
        const long image = row / RESULTS_H * GROUPS + group;
        const int h = row % RESULTS_H * STEP_H + tap_row * TAP_STEP_H + ORIGIN_H;
        if (h < 0 || h >= READ_H) {
            continue;
        }
% if in_place:
        const long y_row = row * (long)RESULTS_W * Y_PIXEL + group * CHANNELS + channel;
% else:
        const long of_block = (image * BLOCKS + block) * RESULTS_H + row % RESULTS_H;
        const long y_row = of_block * RESULTS_W * BLOCK;
% endif
        const long x_row = ${x_row};
% for run in runs:
<% mask = " & 0xffffu" if alone and loop.last else "" %>\
#pragma unroll ${unroll}
        for (int q = ${run.span[0]}; q < ${run.span[-1] + 1}; ++q) {
            const long at_y = y_row + q * ${"Y_PIXEL" if in_place else "BLOCK"};
            const long at_x = x_row + q * ${x_step};
% for u in range(vecs):
            const ${words} y${u} = ${load_y(u)};
% endfor
% for i in range(item_c):
% for s in run.reached:
<% place = f"x + at_x + c{i}{x_channel} + {s} * {x_tap}" %>\
            const ${word} x${i}_${s} = ${f"*({place}){mask}" if pairs or widened else f"LOAD1({place})"};
% for u in range(vecs):
% if pairs:
            DOT_PAIRS(acc${i}_${s}_${u}, (${words})(x${i}_${s}), y${u});
% else:
            acc${i}_${s}_${u} = (${vf})(x${i}_${s}) * y${u} + acc${i}_${s}_${u};
% endif
% endfor
% endfor
% endfor
        }
% endfor
    }

% if not in_place:
    const int channel = block * BLOCK;
% endif
% if in_pixels:
    out += offset_out + ((long)group * CHANNELS + channel) * ${filter_step} + first_c * ${depth_step} + tap_row * ${row_step};
% else:
    out += offset_out + ((long)group * CHANNELS + channel) * FILTER
        + (first_c * TAPS_H + tap_row) * TAPS_W;
% endif
% if split > 1:
    out += plane * (long)GROUPS * CHANNELS * FILTER;
% endif
% for i in range(item_c):
% if edge:
    if (first_c + ${i} < DEPTH)
% endif
    {
% for s in range(taps):
% for u in range(vecs):
        scatter(
% if in_pixels:
            acc${i}_${s}_${u}, out + ${u * vec} * ${filter_step} + ${i} * ${depth_step} + ${s} * ${column_step}, ${"w_filter, " if strides else ""}
% else:
            acc${i}_${s}_${u}, out + ${u * vec} * FILTER + ${i} * TAPS_H * TAPS_W + ${s},
% endif
            CHANNELS - channel - ${u * vec});
% endfor
% endfor
    }
% endfor
}
