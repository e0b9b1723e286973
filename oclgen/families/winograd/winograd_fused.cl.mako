<%doc>
Fused Winograd convolution for GPUs: transforms and products of a block in local memory.

A work-group computes tile_t tiles of tile_k filters. Per step of tile_c channels it transforms the
tiles into V [POINTS][tile_c][tile_t + pad_v], copies U [POINTS][tile_c][tile_k + pad_u], and every
work-item adds item_t x item_k products of one point to its accumulators. At the end the points of
a tile meet in M [POINTS][filters of a pass][tile_t + pad_m], pass by pass, for the way back.

tile_t, tile_k, tile_c   tiles, filters and channels of a block; the latter per step
item_t, item_k           tiles and filters of one work-item (at one point)
vec                      width of local loads: neighbouring tiles or filters of one work-item
stage_u                  copy U to local memory; otherwise it is read where it lies
pad_v, pad_u, pad_m      floats between rows of local memory, against bank conflicts
pass_k                   filters per work-item that go back in one pass
channels_edge            tile_c does not divide the channels
bias, residual           what is added: by filter, and as the target lies
dtype, activation        storage types and epilogue; U [POINTS][CHANNELS][K_PADDED] is fp32
input_axis, output_axis  functions of the transforms
given                    names of sizes that are arguments, since the batch is free
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_residual
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    across_t, across_k = tile_t // item_t, tile_k // item_k
    def copy(to, source, space):
        """Text that copies vec floats to a private array, as one aligned load."""
        if vec == 1:
            return f"*({to}) = *({source});"
        return f"vstore{vec}(*(__{space} const {vf} *)({source}), 0, {to});"
%>\
${preamble}
${activation}
${defines}
#define V_ROW ${tile_t + pad_v}
#define U_ROW ${tile_k + pad_u}
#define M_ROW ${tile_t + pad_m}
#define M_FILTERS ${across_k * pass_k}
#define LOCAL ${local_size}

${input_axis}

${output_axis}

/* An element of a plane of the source; padding reads as zero. */
static inline float pixel(__global const elem_t *plane, const int row, const int column)
{
    return (uint)row < IN_H && (uint)column < IN_W ? LOAD1(plane + row * IN_W + column) : 0.0f;
}

/* V of one tile and channel, written to v, the points ${tile_c} rows apart. */
static inline void input_tile(
    __global const elem_t *plane, const int row, const int column, __local float *v)
{
    float d[POINTS];
#pragma unroll
    for (int i = 0; i < IN_TILE; ++i) {
#pragma unroll
        for (int j = 0; j < IN_TILE; ++j) {
            d[i * IN_TILE + j] = pixel(plane, row + i, column + j);
        }
    }
#pragma unroll
    for (int j = 0; j < IN_TILE; ++j) {
        input_axis(d + j, IN_TILE);
    }
#pragma unroll
    for (int i = 0; i < IN_TILE; ++i) {
        input_axis(d + i * IN_TILE, 1);
    }
#pragma unroll
    for (int p = 0; p < POINTS; ++p) {
        v[p * ${tile_c} * V_ROW] = d[p];
    }
}

/* One tile of one filter from m, the points M_FILTERS rows apart, back to pixels. */
static inline void output_tile(
    __local const float *m, const int row, const int column, const float shift,
% if residual:
    __global const elem_t *residual,
% endif
    __global elem_t *out)
{
    float d[POINTS];
#pragma unroll
    for (int p = 0; p < POINTS; ++p) {
        d[p] = m[p * M_FILTERS * M_ROW];
    }
#pragma unroll
    for (int j = 0; j < IN_TILE; ++j) {
        output_axis(d + j, IN_TILE);
    }
#pragma unroll
    for (int i = 0; i < OUT_TILE; ++i) {
        output_axis(d + i * IN_TILE, 1);
    }
#pragma unroll
    for (int i = 0; i < OUT_TILE; ++i) {
#pragma unroll
        for (int j = 0; j < OUT_TILE; ++j) {
            if (row + i < OUT_H && column + j < OUT_W) {
                const float value = d[i * IN_TILE + j] + shift${plus_residual(residual, 1, "out + (row + i) * OUT_W + column + j")};
                STORE1(ACT(value), out + (row + i) * OUT_W + column + j);
            }
        }
    }
}

__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1)))
void winograd_fused(
    __global const elem_t *restrict source, const long offset_source,
    __global const float *restrict u, const long offset_u,
${term_parameters}\
    __global elem_t *restrict target, const long offset_target${"".join(f", const int {name}" for name in given)})
{
    __local float pool[${pool}] __attribute__((aligned(16)));
    __local float *const v = pool;
% if stage_u:
    __local float *const staged = pool + POINTS * ${tile_c} * V_ROW;
% endif
    const int item = get_local_id(0);
    const int point = item / ${across_t * across_k};
    const int my_t = item % ${across_t}, my_k = item / ${across_t} % ${across_k};
    const int t0 = (int)get_group_id(0) * ${tile_t}, k0 = (int)get_group_id(1) * ${tile_k};
    u += offset_u + k0;

    float acc[${item_k}][${item_t}];
#pragma unroll
    for (int k = 0; k < ${item_k}; ++k) {
#pragma unroll
        for (int t = 0; t < ${item_t}; ++t) {
            acc[k][t] = 0.0f;
        }
    }
    for (int c0 = 0; c0 < CHANNELS; c0 += ${tile_c}) {
        for (int i = item; i < ${tile_c * tile_t}; i += LOCAL) {
            const int c = i / ${tile_t}, t = i % ${tile_t};
            const int tile = min(t0 + t, TILES - 1);
% if channels_edge:
            const int row = c0 + c < CHANNELS ? tile / TILES_W % TILES_H * OUT_TILE - PAD_H : IN_H;
            const int channel = min(c0 + c, CHANNELS - 1);
% else:
            const int row = tile / TILES_W % TILES_H * OUT_TILE - PAD_H;
            const int channel = c0 + c;
% endif
            const long image = tile / (TILES_H * TILES_W);
            input_tile(source + offset_source + (image * CHANNELS + channel) * (IN_H * IN_W),
                row, tile % TILES_W * OUT_TILE - PAD_W, v + c * V_ROW + t);
        }
% if stage_u:
        for (int i = item; i < POINTS * ${tile_c * tile_k // vec}; i += LOCAL) {
            const int k = i % ${tile_k // vec} * ${vec};
            const int c = i / ${tile_k // vec} % ${tile_c}, p = i / ${tile_c * tile_k // vec};
            const int channel = ${"min(c0 + c, CHANNELS - 1)" if channels_edge else "c0 + c"};
            *(__local ${vf} *)(staged + (p * ${tile_c} + c) * U_ROW + k) =
                *(__global const ${vf} *)(u + ((long)p * CHANNELS + channel) * K_PADDED + k);
        }
% endif
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int c = 0; c < ${tile_c}; ++c) {
            float a[${item_t}], b[${item_k}];
            __local const float *va = v + (point * ${tile_c} + c) * V_ROW + my_t * ${vec};
% if stage_u:
            __local const float *ub = staged + (point * ${tile_c} + c) * U_ROW + my_k * ${vec};
% else:
            const int channel = ${"min(c0 + c, CHANNELS - 1)" if channels_edge else "c0 + c"};
            __global const float *ub =
                u + ((long)point * CHANNELS + channel) * K_PADDED + my_k * ${vec};
% endif
% for t in range(0, item_t, vec):
            ${copy(f"a + {t}", f"va + {t * across_t}", "local")}
% endfor
% for k in range(0, item_k, vec):
            ${copy(f"b + {k}", f"ub + {k * across_k}", "local" if stage_u else "global")}
% endfor
#pragma unroll
            for (int k = 0; k < ${item_k}; ++k) {
#pragma unroll
                for (int t = 0; t < ${item_t}; ++t) {
                    acc[k][t] = a[t] * b[k] + acc[k][t];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    __local float *const m = pool;
#pragma unroll
    for (int pass = 0; pass < ${item_k}; pass += ${pass_k}) {
#pragma unroll
        for (int k = 0; k < ${pass_k}; ++k) {
#pragma unroll
            for (int t = 0; t < ${item_t}; ++t) {
                const int tile = t / ${vec} * ${vec * across_t} + my_t * ${vec} + t % ${vec};
                m[(point * M_FILTERS + my_k * ${pass_k} + k) * M_ROW + tile] = acc[pass + k][t];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = item; i < M_FILTERS * ${tile_t}; i += LOCAL) {
            const int slot = i / ${tile_t}, tile = t0 + i % ${tile_t};
            const int mine = pass + slot % ${pass_k};
            const int k = k0 + mine / ${vec} * ${vec * across_k} + slot / ${pass_k} * ${vec}
                + mine % ${vec};
            if (tile < TILES && k < FILTERS) {
                const long image = tile / (TILES_H * TILES_W);
                output_tile(m + slot * M_ROW + i % ${tile_t},
                    tile / TILES_W % TILES_H * OUT_TILE, tile % TILES_W * OUT_TILE,
                    ${"LOAD1(bias + offset_bias + k)" if bias else "0.0f"},
% if residual:
                    residual + offset_residual + (image * FILTERS + k) * (OUT_H * OUT_W),
% endif
                    target + offset_target + (image * FILTERS + k) * (OUT_H * OUT_W));
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
