<%doc>
Gradient of the weights of a convolution with few channels: work-items share out pixels, and results.

local_k work-items beside each other take neighbouring columns, so that every load is of neighbours.
Each sums a tile of the weights, item_m channels of y by tap_rows rows of taps of item_c channels of x,
over its patches: patch_h rows of one column. Whatever has been multiplied for the last time is replaced
at once by what the next patch has in its place, so that all loads of a patch are under way while another
is summed. What local_m x local_c tiles of a group read again comes from the cache: they sum over the
same patches. In the end sums of a tile meet in local memory.

dtype               storage type of x, y and w (accumulation is fp32)
sizes               names and values of the problem's, the patches' and the tiles' sizes
item_m, item_c      channels of y and of x per work-item
tap_rows            rows of the kernel per work-item
patch_h             rows of y that are read at a time
local_m, local_c    tiles of a work-group along y's channels, and along x's channels and rows of taps
local_k             work-items that share the patches of a tile
split               planes over which patches are split (summed by sum_planes)
checked_h, _w       some row, or column, of a window may lie beyond x
ragged              the last patch of a column has fewer rows
edge_m, edge_c      the last tile has fewer channels of y, or of x
</%doc>
<%
    out_type = "float" if split > 1 else "elem_t"
    inside = ["(uint)(at.h + t) < READ_H"] * checked_h
    inside += ["(uint)(at.w + s * TAP_STEP_W) < READ_W"] * checked_w
    channel_m = "min(i, CHANNELS - 1 - at.m)" if edge_m else "i"
    channel_c = "min(j, DEPTH - 1 - at.c)" if edge_c else "j"
%>\
<%def name="read_row(at, indent)">\
#pragma unroll
${indent}for (int j = 0; j < ITEM_C; ++j) {
#pragma unroll
${indent}    for (int s = 0; s < TAPS_W; ++s) {
${indent}        window[j][t][s] = read_x(${at}, j, t, s);
${indent}    }
${indent}}
</%def>\
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
#define ITEMS (LOCAL_M * LOCAL_C * LOCAL_K)
#define READ_PLANE (READ_H * READ_W)
#define RESULTS_PLANE (RESULTS_H * RESULTS_W)
// Sums of a work-item for one channel of y.
#define SPAN (ITEM_C * TAP_ROWS * TAPS_W)

typedef struct {
    int m, c, tap;  // first channel of y, channel of x and row of taps
} Tile;

static inline Tile tile_of(const int group, const int tile)
{
    const int n = group / BLOCKS_M * LOCAL_C + tile % LOCAL_C;
    const Tile at = {
        (group % BLOCKS_M * LOCAL_M + tile / LOCAL_C) * ITEM_M, n / TAP_TILES * ITEM_C,
        n % TAP_TILES * TAP_ROWS};
    return at;
}

// Where a patch of y and its window of x begin, in the first channels of a tile.
typedef struct {
    __global const elem_t *y, *x;
    int m, c, row, h, w;
} Patch;

static inline Patch patch_of(__global const elem_t *y, __global const elem_t *x,
                             const Tile tile, const int patch)
{
    const long image = patch / (RESULTS_W * BANDS);
    const int column = patch % RESULTS_W;
    Patch at;
    // tiles beyond the edge read the last channel
    at.m = ${"min(tile.m, CHANNELS - 1)" if edge_m else "tile.m"};
    at.c = ${"min(tile.c, DEPTH - 1)" if edge_c else "tile.c"};
    at.row = patch / RESULTS_W % BANDS * PATCH_H;
    at.h = at.row * STEP_H + tile.tap * TAP_STEP_H + ORIGIN_H;
    at.w = column * STEP_W + ORIGIN_W;
    at.y = y + (image * CHANNELS + at.m) * RESULTS_PLANE + at.row * RESULTS_W + column;
    at.x = x + (image * DEPTH + at.c) * READ_PLANE + at.h * READ_W + at.w;
    return at;
}

/* Element of channel i and row p of a patch. */
static inline float read_y(const Patch at, const int i, const int p)
{
    __global const elem_t *from = at.y + ${channel_m} * RESULTS_PLANE + p * RESULTS_W;
    return ${"at.row + p < RESULTS_H ? LOAD1(from) : 0.0f" if ragged else "LOAD1(from)"};
}

/* Element of channel j, row t and tap s of a patch's window. */
static inline float read_x(const Patch at, const int j, const int t, const int s)
{
    __global const elem_t *from = at.x + ${channel_c} * READ_PLANE + t * READ_W + s * TAP_STEP_W;
    return ${f"{' && '.join(inside)} ? LOAD1(from) : 0.0f" if inside else "LOAD1(from)"};
}

/* Stores the sums over lanes of channel i of each tile, of which a work-item adds up some. PoCL 3.1
   loses stores of a function that asks for its ids between barriers. */
static inline void store(__local const float *sums, __global ${out_type} *out,
                         const int group, const int id, const int i)
{
    for (int n = id; n < SPAN * LOCAL_M * LOCAL_C; n += ITEMS) {
        const int tile = n / SPAN, of_tile = n % SPAN;
        const Tile at = tile_of(group, tile);
        const int m = at.m + i;
        const int c = at.c + of_tile / (TAP_ROWS * TAPS_W);
        const int tap = at.tap + of_tile / TAPS_W % TAP_ROWS;
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

__kernel __attribute__((reqd_work_group_size(${local_m * local_c * local_k}, 1, 1)))
void conv_narrow_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out)
{
    __local float sums[SPAN * ITEMS];
    const int id = get_local_id(0), group = get_group_id(0), plane = get_group_id(1);
    const Tile tile = tile_of(group, id / LOCAL_K);
    y += offset_y;
    x += offset_x;
    float acc[ITEM_M][SPAN], grad[ITEM_M][PATCH_H], window[ITEM_C][WINDOW_H][TAPS_W];
#pragma unroll
    for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
        for (int n = 0; n < SPAN; ++n) {
            acc[i][n] = 0.0f;
        }
    }

    const int end = min((plane + 1) * PATCHES_PER_PLANE, PATCHES);
    int patch = plane * PATCHES_PER_PLANE + id % LOCAL_K;
    const Patch first = patch_of(y, x, tile, min(patch, PATCHES - 1));
#pragma unroll
    for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
        for (int p = 0; p < PATCH_H; ++p) {
            grad[i][p] = read_y(first, i, p);
        }
    }
#pragma unroll
    for (int t = 0; t < WINDOW_H; ++t) {
${read_row("first", " " * 8)}    }
    for (; patch < end; patch += LOCAL_K) {
        const Patch next = patch_of(y, x, tile, min(patch + LOCAL_K, end - 1));
#pragma unroll
        for (int p = 0; p < PATCH_H; ++p) {
#pragma unroll
            for (int i = 0; i < ITEM_M; ++i) {
#pragma unroll
                for (int n = 0; n < SPAN; ++n) {
                    const int j = n / (TAP_ROWS * TAPS_W), r = n / TAPS_W % TAP_ROWS, s = n % TAPS_W;
                    acc[i][n] = grad[i][p] * window[j][p * STEP_H + r * TAP_STEP_H][s] + acc[i][n];
                }
                grad[i][p] = read_y(next, i, p);
            }
            // later rows of y meet none of these
#pragma unroll
            for (int t = p * STEP_H; t < (p + 1 < PATCH_H ? (p + 1) * STEP_H : WINDOW_H); ++t) {
${read_row("next", " " * 16)}            }
        }
    }

    out += offset_out${" + plane * (CHANNELS * DEPTH * TAPS_H * TAPS_W)" if split > 1 else ""};
% for i in range(item_m):
% if i:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
#pragma unroll
    for (int n = 0; n < SPAN; ++n) {
        sums[n * ITEMS + id] = acc[${i}][n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    store(sums, out, group, id, ${i});
% endfor
}
