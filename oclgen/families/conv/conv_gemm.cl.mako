<%doc>
Implicit-GEMM convolution with tiles staged in local memory; no im2col buffer.

Per group, C = A B with m the result's channel (bwd_weights: the output channel), n the result's
position (bwd_weights: input channel and kernel tap) and k what is summed over, in steps of tile_k.
A work-group computes tile_m x tile_n of C, a work-item item_m x item_n of it, in chunks of
vec_m x vec_n that lie local_m and local_n chunks apart. How tiles are found and copied stands in
`operands`: index arithmetic is done once per column of a work-item, not once per element.

dtype, activation   storage type of x, w, y, bias (accumulation is fp32); epilogue
a_type              type of the elements of A: float where weights were packed
operands            text of `Operands`, locate, fetch, keep, c_column, with the problem's sizes
index               type of an element's index: int where every buffer is short enough
tile_m, tile_n      tile of C per work-group
tile_k              depth of a tile, staged at a time
local_m, local_n    work-items per group
vec_m, vec_n        width of the reads from a tile, and of stores where columns are neighbours
pad                 unused floats at the end of each row of a tile, against bank conflicts
buffers             1, or 2 for double buffering: one barrier less per tile
prefetch            fetch the next tile into private memory before the arithmetic on this one
unroll_k            rows of a tile that are unrolled
split_k             planes over which the tiles of k are split
phases              parts of the problem with sizes of their own; some may have fewer columns
plane_elements      elements of the output, and of a plane
tiles_m, tiles_n    tiles of C; all lie along one dimension, since devices limit the others
given               names of sizes that are arguments, since the batch is free
m_fastest           neighbouring work-groups differ in m, else in n
groups_first        but in the convolution's group before: groups share cache lines
bias, residual      add bias[channel], and what lies as the result does
along               n, or m: what neighbours in C differ in
runs                the columns, or rows, of a chunk are neighbours in C
</%doc>
<%!
    from oclgen.families.parts.epilogue import plus_residual
    from oclgen.render import vector
%>\
<%
    summed = split_k > 1  # C is planes of fp32 sums, which another launch adds
    c_type = "float" if summed else "elem_t"
    def store(width, value, pointer):
        if summed:
            return f"*(__global {vector(width)} *)({pointer}) = {value}"
        aligned = "ALIGNED_" if width > 1 else ""
        value += plus_residual(residual, width, pointer, f"{aligned}LOAD")
        return f"{aligned}STORE{width}(ACT({value}), {pointer})"
%>\
${preamble}
${activation}

typedef ${index} index_t;
#define TILE_M ${tile_m}
#define TILE_N ${tile_n}
#define TILE_K ${tile_k}
#define LOCAL_M ${local_m}
#define LOCAL_N ${local_n}
#define VEC_M ${vec_m}
#define VEC_N ${vec_n}
#define ITEM_M (TILE_M / LOCAL_M)
#define ITEM_N (TILE_N / LOCAL_N)
#define ROW_A (TILE_M + ${pad})
#define ROW_B (TILE_N + ${pad})

// Row of the tile of C that chunked index i of this work-item stands for; columns likewise.
#define ROW(i, id) (((i) / VEC_M * LOCAL_M + (id)) * VEC_M + (i) % VEC_M)
#define COL(j, id) (((j) / VEC_N * LOCAL_N + (id)) * VEC_N + (j) % VEC_N)

${operands}

__kernel __attribute__((reqd_work_group_size(${local_m * local_n}, 1, 1)))
void conv_gemm(
    __global const ${a_type} *restrict a, const long offset_a,
    __global const elem_t *restrict b, const long offset_b,
${term_parameters}\
    __global ${c_type} *restrict c, const long offset_c${"".join(f", const int {name}" for name in given)})
{
    __local float tile_a[${buffers} * TILE_K * ROW_A] __attribute__((aligned(64)));
    __local float tile_b[${buffers} * TILE_K * ROW_B] __attribute__((aligned(64)));
    // neighbouring work-items have neighbouring ${"columns" if along == "n" else "rows"}, which are neighbours in C
    const int id = get_local_id(0);
% if along == "n":
    const int id_m = id / LOCAL_N, id_n = id % LOCAL_N;
% else:
    const int id_m = id % LOCAL_M, id_n = id / LOCAL_M;
% endif
    const int tile = get_group_id(0)${" / GROUPS" if groups_first else ""};
    const int m0 = ${f"tile % {tiles_m}" if m_fastest else f"tile / {tiles_n}"} * TILE_M;
    const int n0 = ${f"tile / {tiles_m}" if m_fastest else f"tile % {tiles_n}"} * TILE_N;
% if groups_first:
    const int phase = (int)get_group_id(1) / ${split_k};
    const int group = (int)get_group_id(0) % GROUPS;
% else:
    const int phase = (int)get_group_id(1) / (GROUPS * ${split_k});
    const int group = (int)get_group_id(1) / ${split_k} % GROUPS;
% endif
% if split_k > 1:
    const int plane = (int)get_group_id(1) % ${split_k};
    const int steps = (STEPS + ${split_k - 1}) / ${split_k};
    const int first = min(plane * steps, STEPS);
    const int last = ${"n0 >= N ? 0 : " if phases > 1 else ""}min(first + steps, STEPS);
% else:
    const int first = 0;
    const int last = ${"n0 >= N ? 0 : " if phases > 1 else ""}STEPS;
% endif

    float acc[ITEM_M][ITEM_N];
#pragma unroll
    for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
        for (int j = 0; j < ITEM_N; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    float next_a[LOADS_A], next_b[LOADS_B];
    Operands at;
    locate(&at, a + offset_a, b + offset_b, phase, group, m0, n0, first, id${", BATCH" if given else ""});
    if (first < last) {
        fetch(&at, next_a, next_b);
        keep(tile_a, tile_b, next_a, next_b, id);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = first; step < last; ++step) {
% if buffers == 2:
        const int slot = (step - first) & 1;
        __local const float *read_a = tile_a + slot * TILE_K * ROW_A;
        __local const float *read_b = tile_b + slot * TILE_K * ROW_B;
        __local float *write_a = tile_a + (1 - slot) * TILE_K * ROW_A;
        __local float *write_b = tile_b + (1 - slot) * TILE_K * ROW_B;
% else:
        __local const float *read_a = tile_a, *read_b = tile_b;
        __local float *write_a = tile_a, *write_b = tile_b;
% endif
        const bool more = step + 1 < last;
% if prefetch:
        if (more) {
            fetch(&at, next_a, next_b);
        }
% endif
#pragma unroll ${unroll_k}
        for (int kk = 0; kk < TILE_K; ++kk) {
            float item_a[ITEM_M], item_b[ITEM_N];
% for name, axis, width in (("a", "M", vec_m), ("b", "N", vec_n)):
<% place = f"read_{name} + kk * ROW_{name.upper()} + {'ROW' if axis == 'M' else 'COL'}(i, id_{axis.lower()})" %>\
#pragma unroll
            for (int i = 0; i < ITEM_${axis}; i += VEC_${axis}) {
% if width == 1:
                item_${name}[i] = *(${place});
% else:
                const float${width} v = *(__local const float${width} *)(${place});
% for s in range(width):
                item_${name}[i + ${s}] = v.s${f"{s:x}"};
% endfor
% endif
            }
% endfor
#pragma unroll
            for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
                for (int j = 0; j < ITEM_N; ++j) {
                    acc[i][j] = item_a[i] * item_b[j] + acc[i][j];
                }
            }
        }
% if buffers == 1:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
        if (more) {
% if not prefetch:
            fetch(&at, next_a, next_b);
% endif
            keep(write_a, write_b, next_a, next_b, id);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    c += offset_c${f" + plane * {plane_elements}" if split_k > 1 else ""};
% if residual:
    residual += offset_residual;
% endif
% if runs:
    const bool wide = (${"((size_t)c | (size_t)residual)" if residual else "(size_t)c"} & (sizeof(*c) * VEC_${along.upper()} - 1)) == 0;
% endif
#pragma unroll
    for (int j = 0; j < ITEM_N; ${"j += VEC_N" if runs and along == "n" else "++j"}) {
        const int n = n0 + COL(j, id_n);
        if (n < N) {
            __global ${c_type} *column = c + c_column(phase, group, n);
#pragma unroll
            for (int i = 0; i < ITEM_M; ${"i += VEC_M" if runs and along == "m" else "++i"}) {
                const int m = m0 + ROW(i, id_m);
                if (m < M) {
                    __global ${c_type} *to = column + (index_t)m * C_ROW;
% if bias:
% if runs and along == "m":
                    const float${vec_m} shift = LOAD${vec_m}(bias + offset_bias + group * M + m);
% else:
                    const float shift = LOAD1(bias + offset_bias + group * M + m);
% endif
% endif
<% value = "acc[i][j]" + (" + shift" if bias else "") %>\
% if runs:
<%
    vec = vec_m if along == "m" else vec_n
    def chunk(s):
        if along == "n":
            return f"acc[i][j + {s}]" + (" + shift" if bias else "")
        return f"acc[i + {s}][j]" + (f" + shift.s{s:x}" if bias else "")
%>\
                    const float${vec} v = (float${vec})(
% for s in range(vec):
                        ${chunk(s)}${"," if s + 1 < vec else ");"}
% endfor
                    if (wide) {
                        ${store(vec, "v", "to")};
                    } else {
% for s in range(vec):
                        ${store(1, f"v.s{s:x}", f"to + {s}")};
% endfor
                    }
% else:
                    const float v = ${value};
                    ${store(1, "v", "to")};
% endif
                }
            }
        }
    }
}
