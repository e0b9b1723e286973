<%doc>
Operands of conv_gemm for correlations (fwd, or the phases of bwd_data): A is w, packed by
conv_gemm_pack to rows of k; B gathers what is read at (n, k); C is scattered to the phase's
positions. No kernel of its own.

Where taps are outer a tile of k has one tap, whose place is known once per tile; else places come
from tables. Columns of B that lie outside are given a place that no tap brings back.

sizes               text of the correlations' sizes; those that differ are tables by `phase`
taps_outer          k counts channels within taps, DEPTH rounded up; else taps within channels
tables              where not taps_outer: name and values by k of what a tap adds
checked             some tap of some column reads padding
ragged              taps_outer, and the channels do not fill the last tile of a tap
full                not taps_outer: no tile reaches beyond the last step
width_a             elements of A per load
tile_n, local_size  columns of a tile, and work-items
</%doc>
${sizes}
#define PLANE (READ_H * READ_W)
#define C_ROW (WRITTEN_H * WRITTEN_W)
#define OUTSIDE -1000000000

// A work-item copies COLUMNS columns of B, every ROWS_APART-th row from row FIRST_ROW(id) on.
#define COLUMNS ${max(tile_n // local_size, 1)}
#define ROWS_APART ${max(local_size // tile_n, 1)}
#define FIRST_ROW(id) (${"(id) / TILE_N" if local_size > tile_n else "0"})
#define COLUMN(l, id) (${"(id) % TILE_N" if local_size > tile_n else "(l) * LOCAL_SIZE + (id)"})

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
% if checked:
    int h[COLUMNS], w[COLUMNS];
% endif
% if taps_outer:
    int channel, tap_h, tap_w, taps_w;
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
                          int phase, int group, int m0, int n0, int first, int id)
{
    at->a = a + PACKED_FIRST + ((long)group * K_PADDED + first * TILE_K) * M_PADDED + m0
        + id * ${width_a} / TILE_M * M_PADDED + id * ${width_a} % TILE_M;
    at->b = b;
% if taps_outer:
    at->channel = first % (DEPTH_PADDED / TILE_K) * TILE_K;
    at->tap_h = first / (DEPTH_PADDED / TILE_K) / TAPS_W;
    at->tap_w = first / (DEPTH_PADDED / TILE_K) % TAPS_W;
    at->taps_w = TAPS_W;
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
        const int n = min(n0 + COLUMN(l, id), N - 1);
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

static inline void fetch(Operands *at, float *next_a, float *next_b)
{
#pragma unroll
    for (int l = 0; l < LOADS_A; l += ${width_a}) {
        __global const float *from =
            at->a + l * LOCAL_SIZE / TILE_M * M_PADDED + l * LOCAL_SIZE % TILE_M;
% if width_a == 1:
        next_a[l] = *from;
% else:
        const float${width_a} v = *(__global const float${width_a} *)from;
% for s in range(width_a):
        next_a[l + ${s}] = v.s${s};
% endfor
% endif
    }
    at->a += TILE_K * M_PADDED;
% if taps_outer:
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
    conditions = []
    if checked:
        conditions.append("(uint)(at->h[l % COLUMNS] + tap_h) < READ_H")
        conditions.append("(uint)(at->w[l % COLUMNS] + tap_w) < READ_W")
    if ragged:
        conditions.append("at->channel + at->first_row + row < DEPTH")
    if not taps_outer and not checked and not full:
        conditions.append("at->k + row < at->k_end")
%>\
% if conditions:
        const bool inside = ${conditions[0]}
% for condition in conditions[1:]:
            && ${condition}
% endfor
            ;
% endif
        const index_t place = at->column[l % COLUMNS] + tap${" + (index_t)row * PLANE" if taps_outer else ""};
        next_b[l] = ${"inside ? LOAD1(at->b + place) : 0.0f" if conditions else "LOAD1(at->b + place)"};
    }
% if taps_outer:
    at->channel += TILE_K;
    if (at->channel >= DEPTH_PADDED) {
        at->channel = 0;
        if (++at->tap_w == at->taps_w) {
            at->tap_w = 0;
            ++at->tap_h;
        }
    }
% else:
    at->k += TILE_K;
% endif
}

static inline void keep(__local float *tile_a, __local float *tile_b,
                        const float *next_a, const float *next_b, int id)
{
#pragma unroll
    for (int l = 0; l < LOADS_A; l += ${width_a}) {
        const int e = l * LOCAL_SIZE + id * ${width_a};
        __local float *to = tile_a + e / TILE_M * ROW_A + e % TILE_M;
% if width_a == 1:
        *to = next_a[l];
% else:
        *(__local float${width_a} *)to =
            (float${width_a})(${", ".join(f"next_a[l + {s}]" for s in range(width_a))});
% endif
    }
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        const int row = l / COLUMNS * ROWS_APART + FIRST_ROW(id);
        tile_b[row * ROW_B + COLUMN(l % COLUMNS, id)] = next_b[l];
    }
}

/* Where row 0 of column n of C is stored. */
static inline index_t c_column(int phase, int group, int n)
{
    const int q = n % (RESULTS_H * RESULTS_W);
    const int h = FIRST_H + q / RESULTS_W * STORE_STEP_H;
    const int w = FIRST_W + q % RESULTS_W * STORE_STEP_W;
    const index_t image = n / (RESULTS_H * RESULTS_W);
    return (image * GROUPS + group) * M * C_ROW + h * WRITTEN_W + w;
}
