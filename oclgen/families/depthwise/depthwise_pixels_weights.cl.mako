<%doc>
Gradient of depthwise weights in channels_last, one result for each channel.

The patches of a plane are dealt out to the local_k rows of a work-group, neighbours to neighbours;
each work-item sums all taps of vec channels over its patches, and the sums of the rows meet in
local memory. A patch is patch_h x patch_w pixels of y and the window of x that they met, both
copied to private memory with zeros around.

dtype               storage type of x, y and w (accumulation is fp32)
sizes               names and values of the problem's and the window's sizes
given               names of sizes that are arguments, since the batch is free
patch_h, patch_w    pixels of y that are copied at a time
vec                 channels per work-item, `vec_c`
shared              lanes of the last vector that are channels of the one before it, which stores them
whole               no patch has pixels beyond y
local_c, local_k    work-items of a group, along channels and patches (local_size / local_c)
split               planes over which the patches are split (summed by sum_planes)
all_rows, parts     rows of taps, and parts of them, each with work-groups of its own
</%doc>
<%!
    from oclgen.families.parts.expressions import lane
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    # zero times an infinity is a NaN: pixels beyond y meet no element of x
    met = "window[r * STEP_H + i * TAP_STEP_H][e * STEP_W + s * TAP_STEP_W]"
    met = met if whole else f"(has_result ? {met} : ({vf})(0.0f))"
    def kept(v):
        rows = "ALL_ROWS" if parts > 1 else "TAPS_H"
        at = f"out + {v} * ({rows} * TAPS_W) + i * TAPS_W + s"
        value = lane("sum", vec, v)
        return f"*({at}) = {value}" if split > 1 else f"STORE1({value}, {at})"
%>\
${preamble}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
% if parts > 1:
#define ALL_ROWS ${all_rows}
% endif

__kernel __attribute__((reqd_work_group_size(${local_c}, ${local_k}, 1)))
void depthwise_pixels_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${"float" if split > 1 else "elem_t"} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    __local ${vf} sums[${local_k}][${local_c}];
    const bool owns = (int)get_global_id(0) * ${vec} < CHANNELS;
    // what lies beyond the channels does the last ones' work, and keeps nothing
    const int channel = min((int)get_global_id(0) * ${vec}, CHANNELS - ${vec});
% if parts > 1:
    const int place = get_local_id(0), lane = get_local_id(1);
    const int plane = get_group_id(2) / ${parts}, first = get_group_id(2) % ${parts} * TAPS_H;
% else:
    const int place = get_local_id(0), lane = get_local_id(1), plane = get_group_id(2);
% endif
    y += offset_y + channel;
    x += offset_x + channel;

    ${vf} acc[TAPS_H][TAPS_W];
#pragma unroll
    for (int i = 0; i < TAPS_H; ++i) {
#pragma unroll
        for (int s = 0; s < TAPS_W; ++s) {
            acc[i][s] = 0.0f;
        }
    }
    const int end = min((plane + 1) * PATCHES_PER_PLANE, PATCHES);
    for (int patch = plane * PATCHES_PER_PLANE + lane; patch < end; patch += ${local_k}) {
        const int column = patch % COLUMNS * ${patch_w};
        const int row = patch / COLUMNS % BANDS * ${patch_h};
        const int image = patch / (COLUMNS * BANDS);
        const int h0 = row * STEP_H + ORIGIN_H${" + first * TAP_STEP_H" if parts > 1 else ""}, w0 = column * STEP_W + ORIGIN_W;
        const long x_corner = ((long)image * READ_H + h0) * READ_W + w0;
        const long y_corner = ((long)image * RESULTS_H + row) * RESULTS_W + column;
        ${vf} window[WINDOW_H][WINDOW_W];
        // elements of a window that lies inside the image are not tested one by one
        if (h0 >= 0 && h0 + WINDOW_H <= READ_H && w0 >= 0 && w0 + WINDOW_W <= READ_W) {
#pragma unroll
            for (int t = 0; t < WINDOW_H; ++t) {
#pragma unroll
                for (int e = 0; e < WINDOW_W; ++e) {
                    window[t][e] = LOAD${vec}(x + (x_corner + t * READ_W + e) * CHANNELS);
                }
            }
        } else {
#pragma unroll
            for (int t = 0; t < WINDOW_H; ++t) {
#pragma unroll
                for (int e = 0; e < WINDOW_W; ++e) {
                    const bool inside =
                        h0 + t >= 0 && h0 + t < READ_H && w0 + e >= 0 && w0 + e < READ_W;
                    window[t][e] = 0.0f;
                    if (inside) {
                        window[t][e] = LOAD${vec}(x + (x_corner + t * READ_W + e) * CHANNELS);
                    }
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ${patch_h}; ++r) {
#pragma unroll
            for (int e = 0; e < ${patch_w}; ++e) {
                ${vf} g = 0.0f;
% if not whole:
                const bool has_result = row + r < RESULTS_H && column + e < RESULTS_W;
% endif
                if (${"row + r < RESULTS_H && column + e < RESULTS_W" if whole else "has_result"}) {
                    g = LOAD${vec}(y + (y_corner + r * RESULTS_W + e) * CHANNELS);
                }
#pragma unroll
                for (int i = 0; i < TAPS_H; ++i) {
#pragma unroll
                    for (int s = 0; s < TAPS_W; ++s) {
                        acc[i][s] = g
                            * ${met}
                            + acc[i][s];
                    }
                }
            }
        }
    }

    out += offset_out + (plane * (long)CHANNELS + channel) * (${"ALL_ROWS * TAPS_W) + first * TAPS_W" if parts > 1 else "TAPS_H * TAPS_W)"};
#pragma unroll
    for (int i = 0; i < TAPS_H; ++i) {
#pragma unroll
        for (int s = 0; s < TAPS_W; ++s) {
            sums[lane][place] = acc[i][s];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (owns && lane == 0${" && first + i < ALL_ROWS" if parts > 1 else ""}) {
                ${vf} sum = acc[i][s];
                for (int k = 1; k < ${local_k}; ++k) {
                    sum += sums[k][place];
                }
% if shared:
                if (channel % ${vec} == 0) {
% for v in range(shared):
                    ${kept(v)};
% endfor
                }
% endif
% for v in range(shared, vec):
                ${kept(v)};
% endfor
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
