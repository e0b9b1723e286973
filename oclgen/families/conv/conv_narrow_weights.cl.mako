<%doc>
Gradient of the weights of a convolution with few channels: work-items share out pixels, and
results.

A patch is patch_h rows of one column of y, in all channels of a work-group, and the windows of x
that they met. Local memory holds local_k neighbouring patches, word by word side by side, taps of a
row included: neighbours copy and read neighbours, whatever stride and padding. Each work-item sums
a tile of the weights, item_m channels of y by tap_rows rows of taps of item_c channels of x, over
one patch of those; local_k of them have the same tile, and in the end their sums meet in local
memory.

dtype               storage type of x, y and w (accumulation is fp32)
sizes               names and values of the problem's, the patches' and the tiles' sizes
given               names of sizes that are arguments, since the batch is free
item_m, item_c      channels of y and of x per work-item
tap_rows            rows of the kernel per work-item
patch_h             rows of y in a patch
local_m, local_c    tiles of a work-group along channels of y, and of x; it has those of all rows of
                    taps
local_k             patches in local memory
window_h            rows of a window that all rows of taps meet
stages              those in local memory at once: 1, copied through registers, or more, by cp.async
split               planes over which patches are split (summed by sum_planes)
local_words         words of local memory
checked_h, _w       some row, or column, of a window may lie beyond x
ragged              the last patch of a column has fewer rows
edge_m, edge_c      the last work-group has fewer channels of y, or of x
</%doc>
<%namespace name="tiles" file="async_tiles.cl.mako"/>\
<%
    out_type = "float" if split > 1 else "elem_t"
    real_y = ["real"] + ["m < at->rows"] * edge_m + ["row + p < RESULTS_H"] * ragged
    real_x = ["real"] + ["c < at->depth"] * edge_c + ["(uint)(h + t * ROW_STEP) < READ_H"] * checked_h
    real_x += ["(uint)(w + s * TAP_STEP_W) < READ_W"] * checked_w
    # where copies of a work-item lie constant distances apart, that is part of their instructions
    tiles_of_group = work_items // local_k
    even_y, even_x = tiles_of_group % patch_h == 0, tiles_of_group % window_h == 0
    copies_y = f"copy_word(to + WORD * n * LOCAL_K, from, {' && '.join(real_y)})"
    copies_x = f"copy_word(to_x + WORD * (n * TAPS_W + s) * LOCAL_K, row_x + s * TAP_STEP_W, {' && '.join(real_x)})"
%>\
${preamble}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define ITEM_M ${item_m}
#define ITEM_C ${item_c}
#define TAP_ROWS ${tap_rows}
#define PATCH_H ${patch_h}
#define LOCAL_M ${local_m}
#define LOCAL_C ${local_c}
#define LOCAL_K ${local_k}
#define TILES (LOCAL_M * LOCAL_C * TAP_TILES)
#define ITEMS (TILES * LOCAL_K)
#define READ_PLANE (READ_H * READ_W)
#define RESULTS_PLANE (RESULTS_H * RESULTS_W)
// Rows of one column that are copied, and words of all patches together.
#define ROWS_Y (LOCAL_M * ITEM_M * PATCH_H)
#define ROWS_X (LOCAL_C * ITEM_C * WINDOW_H)
#define Y_WORDS (ROWS_Y * LOCAL_K)
#define STAGE (Y_WORDS + ROWS_X * TAPS_W * LOCAL_K)
// Sums of a work-item for one channel of y.
#define SPAN (ITEM_C * TAP_ROWS * TAPS_W)

% if stages > 1:
${tiles.instructions()}
typedef uint place_t;
#define WORD 4
% else:
typedef __local float *place_t;
#define WORD 1
#define copy_word(to, from, valid) (*(to) = (valid) ? LOAD1(from) : 0.0f)
% endif

typedef struct {
    __global const elem_t *y, *x;
    int patch, end, lane, tile${", rows" if edge_m else ""}${", depth" if edge_c else ""};
} Operands;

/* Copies the next patch of this lane to local memory at `to`, as far as it is this tile's to do. PoCL 3.1
   computes wrong sums around barriers with `static inline` here, and with ids asked for in functions. */
__attribute__((always_inline))
void copy(Operands *at, place_t to)
{
    const int patch = at->patch;
    const bool real = patch < at->end;
    const int row = patch / RESULTS_W % BANDS * PATCH_H, column = patch % RESULTS_W;
    const int h = row * STEP_H + ORIGIN_H, w = column * STEP_W + ORIGIN_W;
    const long image = patch / (RESULTS_W * BANDS);
    __global const elem_t *y = at->y + image * CHANNELS * RESULTS_PLANE + row * RESULTS_W + column;
    __global const elem_t *x = at->x + image * DEPTH * READ_PLANE + h * READ_W + w;
    to += WORD * (at->tile * LOCAL_K + at->lane);
    const place_t to_x = to + WORD * (Y_WORDS + at->tile * ((TAPS_W - 1) * LOCAL_K));
% if even_y:
    __global const elem_t *first_y = y + at->tile / PATCH_H * RESULTS_PLANE + at->tile % PATCH_H * RESULTS_W;
% endif
% if even_x:
    __global const elem_t *first_x = x + at->tile / WINDOW_H * READ_PLANE + at->tile % WINDOW_H * (ROW_STEP * READ_W);
% endif
#pragma unroll
    for (int n = 0; n < ROWS_Y; n += TILES) {
        const int e = n + at->tile;
        const int m = e / PATCH_H, p = e % PATCH_H;
% if even_y:
        __global const elem_t *from = first_y + n / PATCH_H * RESULTS_PLANE;
% else:
        __global const elem_t *from = y + m * RESULTS_PLANE + p * RESULTS_W;
% endif
        if (n + TILES <= ROWS_Y || e < ROWS_Y) {
            ${copies_y};
        }
    }
#pragma unroll
    for (int n = 0; n < ROWS_X; n += TILES) {
        const int e = n + at->tile;
        const int c = e / WINDOW_H, t = e % WINDOW_H;
% if even_x:
        __global const elem_t *row_x = first_x + n / WINDOW_H * READ_PLANE;
% else:
        __global const elem_t *row_x = x + c * READ_PLANE + t * (ROW_STEP * READ_W);
% endif
        if (n + TILES <= ROWS_X || e < ROWS_X) {
#pragma unroll
            for (int s = 0; s < TAPS_W; ++s) {
                ${copies_x};
            }
        }
    }
    at->patch += LOCAL_K;
}

/* Stores the sums over lanes of channel m0 of each tile, of which a work-item adds up some. */
__attribute__((always_inline))
void store(__local const float *sums, __global ${out_type} *out,
           const int m0, const int c0, const int id)
{
    for (int n = id; n < SPAN * TILES; n += ITEMS) {
        const int tile = n / SPAN, of_tile = n % SPAN;
        const int m = m0 + tile / (LOCAL_C * TAP_TILES) * ITEM_M;
        const int c = c0 + tile / TAP_TILES % LOCAL_C * ITEM_C + of_tile / (TAP_ROWS * TAPS_W);
        const int tap = tile % TAP_TILES * TAP_ROWS + of_tile / TAPS_W % TAP_ROWS;
        __local const float *lanes = sums + of_tile * ITEMS + tile * LOCAL_K;
        float sum = 0.0f;
        for (int k = 0; k < LOCAL_K; ++k) {
            // neighbours begin one bank apart
            sum += lanes[(k + n) % LOCAL_K];
        }
        if (m < CHANNELS && c < DEPTH && tap < TAPS_H) {
            __global ${out_type} *to = out + ((m * DEPTH + c) * TAPS_H + tap) * TAPS_W + of_tile % TAPS_W;
            ${"*to = sum" if split > 1 else "STORE1(sum, to)"};
        }
    }
}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void conv_narrow_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    __local float tiles[${local_words}] __attribute__((aligned(16)));
% if stages > 1:
    uint base;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(base) : "l"(tiles));
% endif
    const int id = get_local_id(0), group = get_group_id(0), plane = get_group_id(1);
    const int m0 = group % BLOCKS_M * (LOCAL_M * ITEM_M), c0 = group / BLOCKS_M * (LOCAL_C * ITEM_C);
    const int lane = id % LOCAL_K, tile = id / LOCAL_K;
    Operands at;
    at.y = y + offset_y + m0 * RESULTS_PLANE;
    at.x = x + offset_x + c0 * READ_PLANE;
    at.patch = plane * (ROUNDS * LOCAL_K) + lane;
    at.end = min((plane + 1) * (ROUNDS * LOCAL_K), PATCHES);
    at.lane = lane;
    at.tile = tile;
% if edge_m:
    at.rows = CHANNELS - m0;
% endif
% if edge_c:
    at.depth = DEPTH - c0;
% endif
    // where this work-item's tile begins in y and in the windows
    const int tile_y = tile / (LOCAL_C * TAP_TILES) * (ITEM_M * PATCH_H) * LOCAL_K + lane;
    const int row_x = tile / TAP_TILES % LOCAL_C * (ITEM_C * WINDOW_H) + tile % TAP_TILES * (TAP_ROWS * WINDOW_TAP_STEP);
    const int tile_x = Y_WORDS + row_x * TAPS_W * LOCAL_K + lane;
    float acc[ITEM_M][SPAN];
#pragma unroll
    for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
        for (int n = 0; n < SPAN; ++n) {
            acc[i][n] = 0.0f;
        }
    }

% for stage in range(stages - 1):
    copy(&at, base + ${stage} * STAGE * WORD);
    COPY_COMMIT();
% endfor
% if stages > 1:
    int read = 0, write = ${stages - 1};
% endif
    for (int round = 0; round < ROUNDS; ++round) {
% if stages > 1:
        COPY_WAIT(${stages - 2});
        barrier(CLK_LOCAL_MEM_FENCE);
        copy(&at, base + write * (STAGE * WORD));
        COPY_COMMIT();
        __local const float *grads = tiles + read * STAGE + tile_y;
        __local const float *windows = tiles + read * STAGE + tile_x;
        write = read;
        read = read == ${stages - 1} ? 0 : read + 1;
% else:
        barrier(CLK_LOCAL_MEM_FENCE);
        copy(&at, tiles);
        barrier(CLK_LOCAL_MEM_FENCE);
        __local const float *grads = tiles + tile_y;
        __local const float *windows = tiles + tile_x;
% endif
        float window[ITEM_C][TILE_H][TAPS_W];
#pragma unroll
        for (int j = 0; j < ITEM_C; ++j) {
#pragma unroll
            for (int t = 0; t < TILE_H; ++t) {
#pragma unroll
                for (int s = 0; s < TAPS_W; ++s) {
                    window[j][t][s] = windows[((j * WINDOW_H + t) * TAPS_W + s) * LOCAL_K];
                }
            }
        }
#pragma unroll
        for (int p = 0; p < PATCH_H; ++p) {
#pragma unroll
            for (int i = 0; i < ITEM_M; ++i) {
                const float grad = grads[(i * PATCH_H + p) * LOCAL_K];
#pragma unroll
                for (int n = 0; n < SPAN; ++n) {
                    const int j = n / (TAP_ROWS * TAPS_W), r = n / TAPS_W % TAP_ROWS, s = n % TAPS_W;
                    acc[i][n] = grad * window[j][p * WINDOW_STEP + r * WINDOW_TAP_STEP][s] + acc[i][n];
                }
            }
        }
    }

% if stages > 1:
    COPY_WAIT(0);
% endif
    out += offset_out${" + plane * (CHANNELS * DEPTH * TAPS_H * TAPS_W)" if split > 1 else ""};
% for i in range(item_m):
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int n = 0; n < SPAN; ++n) {
        tiles[n * ITEMS + id] = acc[${i}][n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    store(tiles, out, m0 + ${i}, c0, id);
% endfor
}
