<%doc>
Operands of conv_gemm and conv_async for correlations (fwd, or the phases of bwd_data): A is w,
packed by conv_gemm_pack to rows of k; B gathers what is read at (n, k); C is scattered to the
phase's positions. No kernel of its own.

Where taps are outer a tile of k has one tap, whose place is known once per tile; else places come
from tables. Columns of B that lie outside are given a place that no tap brings back.

free                the batch is the argument BATCH; a number in the text else
sizes               text of the correlations' sizes; those that differ are tables by `phase`
taps_outer          k counts channels within taps, DEPTH rounded up; else taps within channels
one_tap             no phase has more than one tap
tables              where not taps_outer: name and values by k of what a tap adds
checked             some tap of some column reads padding
ragged              taps_outer, and the channels do not fill the last tile of a tap
full                not taps_outer: no tile reaches beyond the last step
copied              tiles come by cp.async: `copy`; else through private memory: `fetch`, `keep`
width_a, width_b    elements of A, and neighbouring columns of B, per load
tile_n, work_items  columns of a tile, and work-items per group
copiers_a, _b       work-items that load A, and B
</%doc>
<%namespace name="packed" file="conv_gemm_packed.cl.mako"/>\
<%! from oclgen.families.parts.expressions import some_items %>\
<% chunks = tile_n // width_b %>\
${sizes}
#define PLANE (READ_H * READ_W)
#define C_ROW (WRITTEN_H * WRITTEN_W)
#define OUTSIDE -1000000000
#define LOADS_A (TILE_M * TILE_K / ${copiers_a})
#define LOADS_B (TILE_N * TILE_K / ${copiers_b * width_b})

// A work-item loads COLUMNS columns of B, every ROWS_APART-th row from row FIRST_ROW(id) on.
#define COLUMNS ${max(chunks // copiers_b, 1)}
#define ROWS_APART ${max(copiers_b // chunks, 1)}
#define FIRST_ROW(id) (${f"(id) / {chunks}" if copiers_b > chunks else "0"})
#define COLUMN(l, id) (${f"(id) % {chunks}" if copiers_b > chunks else f"((l) * {copiers_b} + (id))"}${f" * {width_b}" if width_b > 1 else ""})

% if not taps_outer:
// What a step of k adds to a column's index, row and column.
% for name, values in tables.items():
__constant int ${name}[] = {
% for start in range(0, len(values), 12):
    ${", ".join(map(str, values[start:start + 12]))},
% endfor
};
% endfor
% endif

typedef struct {
    __global const float *a;
    __global const elem_t *b;
    index_t column[COLUMNS];
% if copied:
    uint to_a, to_b;
% endif
% if checked:
    int h[COLUMNS], w[COLUMNS];
% endif
% if taps_outer:
    int channel${"" if one_tap else ", tap_h, tap_w, taps_w"};
% if ragged:
    int first_row;
% endif
% else:
    int k;
% if not full:
    int k_end;
% endif
% endif
} Operands;

static inline void locate(Operands *at, __global const float *a, __global const elem_t *b,
                          int phase, int group, int m0, int n0, int first, int id${", const int BATCH" if free else ""})
{
${packed.locate(width_a)}\
    at->b = b;
% if copied:
    at->to_a = 4 * (id * ${width_a} / TILE_M * ROW_A + id * ${width_a} % TILE_M);
    at->to_b = 4 * (TILE_K * ROW_A + FIRST_ROW(id) * ROW_B + COLUMN(0, id));
% endif
% if taps_outer:
    at->channel = first % (DEPTH_PADDED / TILE_K) * TILE_K;
% if not one_tap:
    at->tap_h = first / (DEPTH_PADDED / TILE_K) / TAPS_W;
    at->tap_w = first / (DEPTH_PADDED / TILE_K) % TAPS_W;
    at->taps_w = TAPS_W;
% endif
% if ragged:
    at->first_row = FIRST_ROW(id);
% endif
% else:
    at->k = TABLE_FIRST + first * TILE_K + FIRST_ROW(id);
% if not full:
    at->k_end = TABLE_FIRST + K;
% endif
% endif
#pragma unroll
    for (int l = 0; l < COLUMNS; ++l) {
        const int n = min(n0 + COLUMN(l, id), N - ${width_b});
        const int q = n % (RESULTS_H * RESULTS_W);
        const int h = q / RESULTS_W * STEP_H + ORIGIN_H;
        const int w = q % RESULTS_W * STEP_W + ORIGIN_W;
        const index_t image = n / (RESULTS_H * RESULTS_W);
        at->column[l] = (image * GROUPS + group) * DEPTH * PLANE + h * READ_W + w
            + (index_t)${"FIRST_ROW(id)" if taps_outer else "0"} * PLANE;
% if checked:
        at->h[l] = n0 + COLUMN(l, id) < N ? h : OUTSIDE;
        at->w[l] = w;
% endif
    }
}

% if copied:
/* Copies a work-item's part of the next tiles to the local memory at `to`, zeros if none is left. */
static inline void copy(Operands *at, const uint to, const bool more, ${"const bool aligned, " if width_b > 1 else ""}const int id)
% else:
static inline void fetch(Operands *at, float *next_a, float *next_b)
% endif
{
% if copied and not taps_outer:
    if (!more) {
        return;  // the tables end here
    }
% endif
${packed.load(width_a, copiers_a, work_items, copied)}\
% if taps_outer and one_tap:
    const int tap_h = 0, tap_w = 0;
    const index_t tap = (index_t)at->channel * PLANE;
% elif taps_outer:
    const int tap_h = at->tap_h * TAP_STEP_H, tap_w = at->tap_w * TAP_STEP_W;
    const index_t tap = (index_t)at->channel * PLANE + tap_h * READ_W + tap_w;
% endif
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        const int row = l / COLUMNS * ROWS_APART;
% if not taps_outer:
        const index_t tap = STEP_INDEX[at->k + row];
        const int tap_h = STEP_H_OF[at->k + row], tap_w = STEP_W_OF[at->k + row];
% endif
<%
    conditions = ["more"] if copied and taps_outer else []
    if checked:
        conditions.append("(uint)(at->h[l % COLUMNS] + tap_h) < READ_H")
        conditions.append("(uint)(at->w[l % COLUMNS] + tap_w) < READ_W")
    if ragged:
        conditions.append("at->channel + at->first_row + row < DEPTH")
    if not taps_outer and not checked and not full:
        conditions.append("at->k + row < at->k_end")
    inside = "inside" if conditions else "true"
%>\
% if conditions:
        const bool inside = ${conditions[0]}
% for condition in conditions[1:]:
            && ${condition}
% endfor
            ;
% endif
        const index_t place = at->column[l % COLUMNS] + tap${" + (index_t)row * PLANE" if taps_outer else ""};
% if copied:
        const uint to_b = to + at->to_b + 4 * (row * ROW_B + COLUMN(l % COLUMNS, 0));
% endif
% if width_b > 1:
        ${some_items(copiers_b, work_items)}{
            if (aligned) {
                copy_four(to_b, at->b + place, inside ? 4 : 0);
            } else {
                copy_words(to_b, at->b + place, inside ? 4 : 0);
            }
        }
% elif copied:
        ${some_items(copiers_b, work_items)}copy_word(to_b, at->b + place, ${inside});
% else:
        next_b[l] = ${"inside ? LOAD1(at->b + place) : 0.0f" if conditions else "LOAD1(at->b + place)"};
% endif
    }
% if taps_outer:
    at->channel += TILE_K;
% if not one_tap:
    if (at->channel >= DEPTH_PADDED) {
        at->channel = 0;
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
        const int row = l / COLUMNS * ROWS_APART + FIRST_ROW(id);
        tile_b[row * ROW_B + COLUMN(l % COLUMNS, id)] = next_b[l];
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
    return (image * GROUPS + group) * M * C_ROW + h * WRITTEN_W + w;
}
