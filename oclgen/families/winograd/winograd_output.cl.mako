<%doc>
Inverse transform of the staged Winograd convolution: target = act(A^T m A + bias + residual),
from M [points][filters][TILES_PADDED].

vec_t         tiles per work-item, in the lanes of vectors
local_t       work-items per group, along the tiles
dtype         storage type of target and bias; M is fp32
bias          whether a bias per filter is added
residual      whether what lies as the target does is added
activation    the epilogue
output_axis   the function that multiplies one axis by A^T
given         names of sizes that are arguments
run           results of a row that are stored at once, where the target is aligned
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_residual
    from oclgen.families.parts.expressions import lane
    from oclgen.render import vector
%>\
<%
    vf = vector(vec_t)
    # private arrays are registers on GPUs, which take single tiles; on CPUs they stay in memory
    unroll = "#pragma unroll" if vec_t == 1 else ""
    load = "*in" if vec_t == 1 else f"vload{vec_t}(0, in)"
    shifted = " + shift" if bias else ""
%>\
${preamble}
${activation}
${defines}

${output_axis}

__kernel __attribute__((reqd_work_group_size(${local_t}, 1, 1)))
void winograd_output(
    __global const float *restrict m, const long offset_m,
${term_parameters}\
    __global elem_t *restrict target, const long offset_target${"".join(f", const int {name}" for name in given)})
{
    const int t = (int)get_global_id(0) * ${vec_t};
    const int k = get_global_id(1);
    if (t >= TILES) {
        return;
    }
    ${vf} d[POINTS];
    __global const float *in = m + offset_m + (long)k * TILES_PADDED + t;
${unroll}
    for (int p = 0; p < POINTS; ++p, in += (long)FILTERS * TILES_PADDED) {
        d[p] = ${load};
    }
${unroll}
    for (int j = 0; j < IN_TILE; ++j) {
        output_axis(d + j, IN_TILE);
    }
${unroll}
    for (int i = 0; i < OUT_TILE; ++i) {
        output_axis(d + i * IN_TILE, 1);
    }
% if bias:
    const float shift = LOAD1(bias + offset_bias + k);
% endif
% if residual:
    residual += offset_residual;
% endif
% for s in range(vec_t):
    if (t + ${s} < TILES) {
        const int tile = t + ${s};
        const int row = tile / TILES_W % TILES_H * OUT_TILE;
        const int column = tile % TILES_W * OUT_TILE;
        __global elem_t *out = target + offset_target
            + ((long)(tile / (TILES_H * TILES_W)) * FILTERS + k) * (OUT_H * OUT_W);
% if run > 1:
        if (IS_ALIGNED(target + offset_target, 0, sizeof(elem_t), ${run})${f" && IS_ALIGNED(residual, 0, sizeof(elem_t), {run})" if residual else ""}) {
#pragma unroll
            for (int i = 0; i < OUT_TILE; ++i) {
#pragma unroll
                for (int j = 0; j < OUT_TILE; j += ${run}) {
                    if (row + i < OUT_H && column + j < OUT_W) {
                        const float${run} value = (float${run})(
                            ${", ".join(f"d[i * IN_TILE + j + {x}]" for x in range(run))})${shifted}${plus_residual(residual, run, "out + (row + i) * OUT_W + column + j", "ALIGNED_LOAD")};
                        ALIGNED_STORE${run}(ACT(value), out + (row + i) * OUT_W + column + j);
                    }
                }
            }
            return;
        }
% endif
${unroll}
        for (int i = 0; i < OUT_TILE; ++i) {
${unroll}
            for (int j = 0; j < OUT_TILE; ++j) {
                if (row + i < OUT_H && column + j < OUT_W) {
                    const float value = ${lane("d[i * IN_TILE + j]", vec_t, s)}${shifted}${plus_residual(residual, 1, "out + (row + i) * OUT_W + column + j")};
                    STORE1(ACT(value), out + (row + i) * OUT_W + column + j);
                }
            }
        }
    }
% endfor
}
