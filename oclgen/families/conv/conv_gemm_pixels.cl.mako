<%doc>
Operands of conv_gemm and conv_async for correlations (fwd, or the phases of bwd_data) of images in
channels_last: A is w, packed by conv_gemm_pack to rows of k; B gathers what is read at (n, k); C is
scattered to the phase's pixels, whose channels, rows of C, are neighbours. No kernel of its own.

k counts channels within taps. A work-item loads one step of k per tile, and neighbouring work-items
load neighbouring steps, which are neighbours in memory as long as they have one tap; each alone,
since a tile is rows of k: held as rows of columns, it would want four times the registers of B.
`met` says by a bit for each row and each column of taps which of them meet pixels; those of no
result meet none.

free                the batch is the argument BATCH; a number in the text else
sizes               text of the correlations' sizes; those that differ are tables by `phase`
taps_outer          DEPTH of each tap is rounded up to whole tiles; else tiles have several taps
one_tap             no phase has more than one tap
checked             some tap of some column reads padding
ragged              the channels of a tap, or where not taps_outer all steps, do not fill whole
                    tiles
copied              tiles come by cp.async: `copy`; else through private memory: `fetch`, `keep`
width_a             elements of A per load
work_items          work-items per group
copiers_a, _b       work-items that load A, and B: the latter a multiple of tile_k
</%doc>
<%namespace name="packed" file="conv_gemm_packed.cl.mako"/>\
<%
    counted = taps_outer and not one_tap
    conditions = ["more"] if copied else []
    if ragged:
        conditions.append("at->channel < DEPTH" if taps_outer else "at->k < at->k_end")
    inside = ["real"] if conditions else []
    if checked:
        inside.append("(at->met[l] & tap) == tap")
%>\
${sizes}
#define PIXEL (GROUPS * DEPTH)
#define C_ROW 1
#define LOADS_A (TILE_M * TILE_K / ${copiers_a})
#define LOADS_B (TILE_N * TILE_K / ${copiers_b})

// A work-item loads columns of B that lie so far apart.
#define APART (${copiers_b} / TILE_K)

typedef struct {
    __global const float *a;
    __global const elem_t *b;
    index_t column[LOADS_B];
% if copied:
    uint to_a, to_b;
% endif
% if checked:
    uint met[LOADS_B];
% endif
% if taps_outer:
    int channel${", tap_h, tap_w, taps_w" if counted else ""};
% else:
    int k, taps_w${", k_end" if ragged else ""};
% endif
} Operands;

static inline void locate(Operands *at, __global const float *a, __global const elem_t *b,
                          int phase, int group, int m0, int n0, int first, int id${", const int BATCH" if free else ""})
{
${packed.locate(width_a)}\
    at->b = b;
% if copied:
    at->to_a = 4 * (id * ${width_a} / TILE_M * ROW_A + id * ${width_a} % TILE_M);
    at->to_b = 4 * (TILE_K * ROW_A + id % TILE_K * ROW_B + id / TILE_K);
% endif
% if taps_outer:
    at->channel = first % (DEPTH_PADDED / TILE_K) * TILE_K + id % TILE_K;
% if counted:
    at->tap_h = first / (DEPTH_PADDED / TILE_K) / TAPS_W;
    at->tap_w = first / (DEPTH_PADDED / TILE_K) % TAPS_W;
    at->taps_w = TAPS_W;
% endif
% else:
    at->k = first * TILE_K + id % TILE_K;
    at->taps_w = TAPS_W;
% if ragged:
    at->k_end = K;
% endif
% endif
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        const int n = n0 + id / TILE_K + l * APART;
        const int q = min(n, N - 1) % (RESULTS_H * RESULTS_W);
        const int h = q / RESULTS_W * STEP_H + ORIGIN_H;
        const int w = q % RESULTS_W * STEP_W + ORIGIN_W;
        const index_t image = min(n, N - 1) / (RESULTS_H * RESULTS_W);
        at->column[l] = ((image * READ_H + h) * READ_W + w) * PIXEL + group * DEPTH;
% if checked:
        at->met[l] = 0;
        for (int row = 0; row < TAPS_H; ++row) {
            at->met[l] |= n < N && (uint)(h + row * TAP_STEP_H) < READ_H ? 1u << row : 0;
        }
        for (int column = 0; column < TAPS_W; ++column) {
            at->met[l] |= (uint)(w + column * TAP_STEP_W) < READ_W ? 0x10000u << column : 0;
        }
% endif
    }
}

% if copied:
/* Copies a work-item's part of the next tiles to the local memory at `to`, zeros if none is left. */
static inline void copy(Operands *at, const uint to, const bool more, const int id)
% else:
static inline void fetch(Operands *at, float *next_a, float *next_b)
% endif
{
${packed.load(width_a, copiers_a, work_items, copied)}\
% if counted:
    const int row = at->tap_h, column = at->tap_w, channel = at->channel;
% elif taps_outer:
    const int row = 0, column = 0, channel = at->channel;
% else:
    const int taps = at->k / DEPTH, channel = at->k % DEPTH;
    const int row = taps / at->taps_w, column = taps % at->taps_w;
% endif
    const index_t step =
        (index_t)(row * TAP_STEP_H * READ_W + column * TAP_STEP_W) * PIXEL + channel;
% if checked:
    const uint tap = 1u << row | 0x10000u << column;
% endif
% if conditions:
    const bool real = ${" && ".join(conditions)};
% endif
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        __global const elem_t *from = at->b + at->column[l] + step;
% if inside:
        const bool inside = ${" && ".join(inside)};
% endif
% if copied:
        ${f"if (id < {copiers_b}) " if copiers_b < work_items else ""}copy_word(to + at->to_b + 4 * l * APART, from, inside);
% else:
        next_b[l] = ${"inside ? LOAD1(from) : 0.0f" if inside else "LOAD1(from)"};
% endif
    }
% if taps_outer:
    at->channel += TILE_K;
% if counted:
    if (at->channel >= DEPTH_PADDED) {
        at->channel -= DEPTH_PADDED;
        if (++at->tap_w == at->taps_w) {
            at->tap_w = 0;
            ++at->tap_h;
        }
    }
% endif
% else:
    at->k += TILE_K;
% endif
}

% if not copied:
static inline void keep(__local float *tile_a, __local float *tile_b,
                        const float *next_a, const float *next_b, int id)
{
${packed.keep(width_a, copiers_a)}\
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        tile_b[id % TILE_K * ROW_B + id / TILE_K + l * APART] = next_b[l];
    }
}
% endif

/* Where row 0 of column n of C is stored. */
static inline index_t c_column(int phase, int group, int n)
{
    const int q = n % (RESULTS_H * RESULTS_W);
    const int h = FIRST_H + q / RESULTS_W * STORE_STEP_H;
    const int w = FIRST_W + q % RESULTS_W * STORE_STEP_W;
    const index_t image = n / (RESULTS_H * RESULTS_W);
    return ((image * WRITTEN_H + h) * WRITTEN_W + w) * (GROUPS * M) + group * M;
}
