<%doc>
Inverse transform of the staged Winograd convolution in channels_last: target = act(A^T m A + bias
+ residual), from M [points][TILES_PADDED][filters].

Neighbouring work-items take neighbouring filters, which lie together in M and in the target.

vec           filters per work-item, in the lanes of vectors
local_k       work-items per group, along the filters
local_t       work-items per group, along the tiles
dtype         storage type of target and bias; M is fp32
bias          whether a bias per filter is added
residual      whether what lies as the target does is added
activation    the epilogue
output_axis   the function that multiplies one axis by A^T
given         names of sizes that are arguments, since the batch is free
</%doc>
<%! from oclgen.families.parts.epilogue import plus_residual %>\
<%
    vf = "float" if vec == 1 else f"float{vec}"
    load = "*in" if vec == 1 else f"vload{vec}(0, in)"
%>\
${preamble}
${activation}
${defines}

${output_axis}

__kernel __attribute__((reqd_work_group_size(${local_k}, ${local_t}, 1)))
void winograd_output(
    __global const float *restrict m, const long offset_m,
${term_parameters}\
    __global elem_t *restrict target, const long offset_target${"".join(f", const int {name}" for name in given)})
{
    const int k = (int)get_global_id(0) * ${vec};
    const int t = get_global_id(1);
    if (k >= FILTERS || t >= TILES) {
        return;
    }
    ${vf} d[POINTS];
    __global const float *in = m + offset_m + (long)t * FILTERS + k;
#pragma unroll
    for (int p = 0; p < POINTS; ++p, in += (long)FILTERS * TILES_PADDED) {
        d[p] = ${load};
    }
#pragma unroll
    for (int j = 0; j < IN_TILE; ++j) {
        output_axis(d + j, IN_TILE);
    }
#pragma unroll
    for (int i = 0; i < OUT_TILE; ++i) {
        output_axis(d + i * IN_TILE, 1);
    }
% if bias:
    const ${vf} shift = LOAD${vec}(bias + offset_bias + k);
% endif
% if residual:
    residual += offset_residual;
% endif
    const int row = t / TILES_W % TILES_H * OUT_TILE;
    const int column = t % TILES_W * OUT_TILE;
    const long image = t / (TILES_H * TILES_W);
    __global elem_t *out = target + offset_target
        + ((image * OUT_H + row) * OUT_W + column) * FILTERS + k;
#pragma unroll
    for (int i = 0; i < OUT_TILE; ++i) {
#pragma unroll
        for (int j = 0; j < OUT_TILE; ++j) {
            if (row + i < OUT_H && column + j < OUT_W) {
                const ${vf} value = d[i * IN_TILE + j]${" + shift" if bias else ""}${plus_residual(residual, vec, "out + (long)(i * OUT_W + j) * FILTERS")};
                STORE${vec}(ACT(value), out + (long)(i * OUT_W + j) * FILTERS);
            }
        }
    }
}
