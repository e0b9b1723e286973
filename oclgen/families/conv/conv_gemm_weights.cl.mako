<%doc>
Operands of conv_gemm and conv_async for the gradient of the weights: A is y at (channel m,
position k), B gathers x at (input channel and tap n, position k), C is w. k counts positions of
all images, and neighbouring work-items read neighbouring positions. No kernel of its own.

free                the batch is the argument BATCH; a number in the text else
sizes               text of the problem's sizes
checked             some tap of some position reads padding
strung              the one tap of a position reads the same position of x
full                every tile has all its rows
copied              tiles come by cp.async: `copy`; else through private memory: `fetch`, `keep`
work_items          work-items per group
copiers_a, _b       work-items that load A, and B: multiples of tile_k
</%doc>
<%! from oclgen.families.parts.expressions import some_items %>\
${sizes}
#define PLANE (HEIGHT * WIDTH)
#define C_ROW N
#define LOADS_A (TILE_M * TILE_K / ${copiers_a})
#define LOADS_B (TILE_N * TILE_K / ${copiers_b})

// A work-item loads rows of A, and columns of B, that lie so far apart, of one position per tile.
#define APART_A (${copiers_a} / TILE_K)
#define APART_B (${copiers_b} / TILE_K)

typedef struct {
    __global const elem_t *y, *x;
    int k${"" if full else ", rows"}${", batch" if free else ""};
    index_t column[LOADS_B];
% if copied:
    uint to_a, to_b;
% endif
% if checked:
    int tap[LOADS_B];
% endif
} Operands;

static inline void locate(Operands *at, __global const elem_t *y, __global const elem_t *x,
                          int phase, int group, int m0, int n0, int first, int id${", const int BATCH" if free else ""})
{
    const int m = m0 + id / TILE_K;
    at->y = y + ((long)group * M + m) * (OUT_H * OUT_W);
    at->x = x + (long)group * DEPTH * PLANE;
    at->k = first * TILE_K + id % TILE_K;
% if free:
    at->batch = BATCH;
% endif
% if not full:
    at->rows = M - m;
% endif
% if copied:
    at->to_a = 4 * (id % TILE_K * ROW_A + id / TILE_K);
    at->to_b = 4 * (TILE_K * ROW_A + id % TILE_K * ROW_B + id / TILE_K);
% endif
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        const int n = min(n0 + id / TILE_K + l * APART_B, N - 1);
        const int tap = n % (KERNEL_H * KERNEL_W);
        const int h = tap / KERNEL_W * DILATION_H;
        const int w = tap % KERNEL_W * DILATION_W;
        at->column[l] = (index_t)(n / (KERNEL_H * KERNEL_W)) * PLANE + h * WIDTH + w;
% if checked:
        at->tap[l] = h << 16 | w;
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
% if free:
    const int BATCH = at->batch;
% endif
    const bool real = ${"more && " if copied else ""}at->k < K;
    const index_t image = at->k / (OUT_H * OUT_W);
    const int q = at->k % (OUT_H * OUT_W);
% if strung:
    const int place = q;
% else:
    const int h = q / OUT_W * STRIDE_H - PAD_H, w = q % OUT_W * STRIDE_W - PAD_W;
    const int place = h * WIDTH + w;
% endif
    __global const elem_t *y = at->y + image * GROUPS * M * (OUT_H * OUT_W) + q;
    __global const elem_t *x = at->x + image * GROUPS * DEPTH * PLANE + place;
#pragma unroll
    for (int l = 0; l < LOADS_A; ++l) {
        const bool inside = real${"" if full else " && l * APART_A < at->rows"};
        __global const elem_t *from = y + (index_t)(l * APART_A) * (OUT_H * OUT_W);
% if copied:
        ${some_items(copiers_a, work_items)}copy_word(to + at->to_a + 4 * l * APART_A, from, inside);
% else:
        next_a[l] = inside ? LOAD1(from) : 0.0f;
% endif
    }
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
% if checked:
        const bool inside = real && (uint)(h + (at->tap[l] >> 16)) < HEIGHT
            && (uint)(w + (at->tap[l] & 0xffff)) < WIDTH;
% else:
        const bool inside = real;
% endif
% if copied:
        ${some_items(copiers_b, work_items)}copy_word(to + at->to_b + 4 * l * APART_B, x + at->column[l], inside);
% else:
        next_b[l] = inside ? LOAD1(x + at->column[l]) : 0.0f;
% endif
    }
    at->k += TILE_K;
}

% if not copied:
static inline void keep(__local float *tile_a, __local float *tile_b,
                        const float *next_a, const float *next_b, int id)
{
#pragma unroll
    for (int l = 0; l < LOADS_A; ++l) {
        tile_a[id % TILE_K * ROW_A + id / TILE_K + l * APART_A] = next_a[l];
    }
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        tile_b[id % TILE_K * ROW_B + id / TILE_K + l * APART_B] = next_b[l];
    }
}
% endif

/* Where row 0 of column n of C is stored. */
static inline index_t c_column(int phase, int group, int n)
{
    return (index_t)group * M * N + n;
}
