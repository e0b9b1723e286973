<%doc>
Implicit-GEMM convolution with tiles staged in local memory; NCHW, no im2col buffer.

Per group, C = A B with m the result's channel (bwd_weights: the output channel), n the result's
position (bwd_weights: input channel and kernel tap) and k what is summed over. Elements of A and B
are found by index arithmetic on sizes that stand in the text, and are zero in the padding.
A work-group computes tile_m x tile_n of C, a work-item item_m x item_n of it, in chunks of
vec_m x vec_n that lie local_m and local_n chunks apart.

dtype, activation   storage type of x, w, y, bias (accumulation is fp32); epilogue
operands            text of load_a, load_b and c_index, with the problem's sizes
tile_m, tile_n      tile of C per work-group
tile_k              depth of a tile, staged at a time
local_m, local_n    work-items per group
vec_m, vec_n        width of the reads from a tile
stage_a, stage_b    keep the tile of A, of B in local memory; else read it where it lies
pad                 unused floats at the end of each row of a tile, against bank conflicts
buffers             1, or 2 for double buffering: one barrier less per tile
prefetch            fetch the next tile into private memory before the arithmetic on this one
unroll_k            steps of a tile that are unrolled
split_k             planes over which the reduction is split (summed by sum_planes)
k_per_plane         steps of the reduction in each plane
plane_elements      elements of the output, and of a plane
m_fastest           neighbouring work-groups differ in m, else in n
bias                add bias[channel]
</%doc>
<%
    staged = [name for name, on in (("a", stage_a), ("b", stage_b)) if on]
    m_dim, n_dim = (0, 1) if m_fastest else (1, 0)
    local_order = "LOCAL_M, LOCAL_N" if m_fastest else "LOCAL_N, LOCAL_M"
    axis_of = {"a": "M", "b": "N"}
%>\
${preamble}
${activation}

#define TILE_M ${tile_m}
#define TILE_N ${tile_n}
#define TILE_K ${tile_k}
#define LOCAL_M ${local_m}
#define LOCAL_N ${local_n}
#define VEC_M ${vec_m}
#define VEC_N ${vec_n}
#define ITEM_M (TILE_M / LOCAL_M)
#define ITEM_N (TILE_N / LOCAL_N)
#define LOCAL_SIZE (LOCAL_M * LOCAL_N)
#define LOADS_A (TILE_M * TILE_K / LOCAL_SIZE)
#define LOADS_B (TILE_N * TILE_K / LOCAL_SIZE)
% if split_k > 1:
#define K_PER_PLANE ${k_per_plane}
#define PLANE_ELEMENTS ${plane_elements}L
% endif

// Row of the tile of C that chunked index i of this work-item stands for; columns likewise.
#define ROW(i, id) (((i) / VEC_M * LOCAL_M + (id)) * VEC_M + (i) % VEC_M)
#define COL(j, id) (((j) / VEC_N * LOCAL_N + (id)) * VEC_N + (j) % VEC_N)

${operands}

__kernel __attribute__((reqd_work_group_size(${local_order}, 1)))
void conv_gemm(
    __global const elem_t *restrict a, const long offset_a,
    __global const elem_t *restrict b, const long offset_b,
% if bias:
    __global const elem_t *restrict bias, const long offset_bias,
% endif
    __global ${"float" if split_k > 1 else "elem_t"} *restrict c, const long offset_c)
{
    const int id_m = get_local_id(${m_dim});
    const int id_n = get_local_id(${n_dim});
    const int m0 = (int)get_group_id(${m_dim}) * TILE_M;
    const int n0 = (int)get_group_id(${n_dim}) * TILE_N;
    const int group = (int)get_group_id(2) / ${split_k};
% if split_k > 1:
    const int plane = (int)get_group_id(2) % ${split_k};
    const int k_first = plane * K_PER_PLANE;
    const int k_end = min(k_first + K_PER_PLANE, K);
% else:
    const int k_first = 0;
    const int k_end = K;
% endif
    a += offset_a;
    b += offset_b;
% if staged:
    const int id = id_n * LOCAL_M + id_m;
% endif
% for name in staged:
    __local float tile_${name}[${buffers}][TILE_K][TILE_${axis_of[name]} + ${pad}];
    float next_${name}[LOADS_${name.upper()}];
% endfor
    float acc[ITEM_M][ITEM_N];
#pragma unroll
    for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
        for (int j = 0; j < ITEM_N; ++j) {
            acc[i][j] = 0.0f;
        }
    }
<%def name="fetch(k0)">\
% if stage_a:
#pragma unroll
        for (int l = 0; l < LOADS_A; ++l) {
            const int e = l * LOCAL_SIZE + id;
            next_a[l] = load_a(a, group, m0 + A_M(e), ${k0} + A_K(e), k_end);
        }
% endif
% if stage_b:
#pragma unroll
        for (int l = 0; l < LOADS_B; ++l) {
            const int e = l * LOCAL_SIZE + id;
            next_b[l] = load_b(b, group, n0 + B_N(e), ${k0} + B_K(e), k_end);
        }
% endif
</%def>\
<%def name="keep(slot)">\
% if stage_a:
#pragma unroll
        for (int l = 0; l < LOADS_A; ++l) {
            const int e = l * LOCAL_SIZE + id;
            tile_a[${slot}][A_K(e)][A_M(e)] = next_a[l];
        }
% endif
% if stage_b:
#pragma unroll
        for (int l = 0; l < LOADS_B; ++l) {
            const int e = l * LOCAL_SIZE + id;
            tile_b[${slot}][B_K(e)][B_N(e)] = next_b[l];
        }
% endif
</%def>\
<%def name="read(name, width, axis, staged_here)">\
<%
    at, id = ("ROW", "id_m") if axis == "M" else ("COL", "id_n")
    first = "m0" if axis == "M" else "n0"
%>\
#pragma unroll
            for (int i = 0; i < ITEM_${axis}; i += VEC_${axis}) {
% if staged_here and width > 1:
                const float${width} v = vload${width}(0, &tile_${name}[slot][kk][${at}(i, ${id})]);
% for s in range(width):
                item_${name}[i + ${s}] = v.s${f"{s:x}"};
% endfor
% elif staged_here:
                item_${name}[i] = tile_${name}[slot][kk][${at}(i, ${id})];
% else:
#pragma unroll
                for (int s = 0; s < VEC_${axis}; ++s) {
                    const int at = ${first} + ${at}(i + s, ${id});
                    item_${name}[i + s] = load_${name}(${name}, group, at, k0 + kk, k_end);
                }
% endif
            }
</%def>\

% if staged:
    if (k_first < k_end) {
${fetch("k_first")}\
${keep("0")}\
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int k0 = k_first; k0 < k_end; k0 += TILE_K) {
% if staged:
        const int slot = ${"(k0 - k_first) / TILE_K % 2" if buffers == 2 else "0"};
        const bool more = k0 + TILE_K < k_end;
% if prefetch:
        if (more) {
${fetch("k0 + TILE_K")}\
        }
% endif
% endif
#pragma unroll ${unroll_k}
        for (int kk = 0; kk < TILE_K; ++kk) {
            float item_a[ITEM_M], item_b[ITEM_N];
${read("a", vec_m, "M", stage_a)}\
${read("b", vec_n, "N", stage_b)}\
#pragma unroll
            for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
                for (int j = 0; j < ITEM_N; ++j) {
                    acc[i][j] = item_a[i] * item_b[j] + acc[i][j];
                }
            }
        }
% if staged:
% if buffers == 1:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
        if (more) {
% if not prefetch:
${fetch("k0 + TILE_K")}\
% endif
${keep("1 - slot" if buffers == 2 else "0")}\
        }
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
    }

#pragma unroll
    for (int i = 0; i < ITEM_M; ++i) {
        const int m = m0 + ROW(i, id_m);
#pragma unroll
        for (int j = 0; j < ITEM_N; ++j) {
            const int n = n0 + COL(j, id_n);
            if (m < M && n < N) {
% if split_k > 1:
                c[offset_c + plane * PLANE_ELEMENTS + c_index(group, m, n)] = acc[i][j];
% elif bias:
                const float value = acc[i][j] + LOAD1(bias + offset_bias + group * M + m);
                STORE1(ACT(value), c + offset_c + c_index(group, m, n));
% else:
                STORE1(ACT(acc[i][j]), c + offset_c + c_index(group, m, n));
% endif
            }
        }
    }
}
