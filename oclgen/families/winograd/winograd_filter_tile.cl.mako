<%doc>
The filter transform of one channel, a function that several kernels contain.

taps          rows and columns of a filter, or of a block of it
cut           the filter is cut into blocks, of which one is transformed; what hangs over is zero
vec_k         filters in the lanes of one vector
rotated       the filter is stored [channels, filters] and turned by half (backward-data)
strided       the strides of w are arguments, whatever the order in which it is stored
given         names of sizes that are arguments
filter_axis   the function that multiplies one axis by G
</%doc>
<%!
    from oclgen.families.parts.expressions import store
    from oclgen.render import vector
%>\
<%
    vf = vector(vec_k)
    lanes = [f"LOAD1(w + tap + lane{s})" for s in range(vec_k)]
    if strided:
        row, column = (f"({taps - 1} - {i})" if rotated else i for i in "rs")
        if cut:
            row, column = ("(KERNEL_H - 1 - row)", "(KERNEL_W - 1 - column)") if rotated else ("row", "column")
        tap = f"{row} * w_row + {column} * w_column"
    elif cut:
        tap = "row * KERNEL_W + column"
        tap = f"KERNEL_H * KERNEL_W - 1 - ({tap})" if rotated else tap
    else:
        tap = f"{taps**2 - 1} - (r * {taps} + s)" if rotated else f"r * {taps} + s"
    filter_size = "(KERNEL_H * KERNEL_W)" if cut else taps**2
    source_c = "SOURCE_CHANNELS" if cut else "CHANNELS"
    if cut:
        lanes = [f"inside ? {one} : 0.0f" for one in lanes]
%>\
${filter_axis}

/* U of ${vec_k} filters from k0 on and of channel c; the points are `step` floats apart. */
static void filter_tile(
    __global const elem_t *w, \
% if strided:
const long w_filter, const long w_channel,
    const long w_row, const long w_column,
    \
% endif
${"".join(f"const int {name}, " for name in given)}const int k0, const int c, ${"const int block, " if cut else ""}__global float *u, const long step)
{
    ${vf} v[POINTS];
% for s in range(vec_k):
% if strided:
    const long lane${s} = min(k0 + ${s}, FILTERS - 1) * w_filter + c * w_channel;
% elif rotated:
    const long lane${s} = ((long)c * FILTERS + min(k0 + ${s}, FILTERS - 1)) * ${filter_size};
% else:
    const long lane${s} = ((long)min(k0 + ${s}, FILTERS - 1) * ${source_c} + c) * ${filter_size};
% endif
% endfor
#pragma unroll
    for (int r = 0; r < ${taps}; ++r) {
#pragma unroll
        for (int s = 0; s < ${taps}; ++s) {
% if cut:
            const int row = block / BLOCKS_W * TAPS + r, column = block % BLOCKS_W * TAPS + s;
            const bool inside = row < KERNEL_H && column < KERNEL_W;
% endif
            const ${"long" if strided else "int"} tap = ${tap};
% if vec_k == 1:
            v[r * IN_TILE + s] = ${lanes[0]};
% else:
            v[r * IN_TILE + s] = (${vf})(
% for start in range(0, vec_k, 2):
                ${", ".join(lanes[start:start + 2])}${"," if start + 2 < vec_k else ");"}
% endfor
% endif
        }
    }
#pragma unroll
    for (int s = 0; s < ${taps}; ++s) {
        filter_axis(v + s, IN_TILE);
    }
#pragma unroll
    for (int i = 0; i < IN_TILE; ++i) {
        filter_axis(v + i * IN_TILE, 1);
    }
#pragma unroll
    for (int p = 0; p < POINTS; ++p, u += step) {
        ${store(vec_k, "v[p]", "u")};
    }
}
