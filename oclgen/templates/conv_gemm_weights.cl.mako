<%doc>
Operands of conv_gemm for the gradient of the weights: A is y at (channel m, position k), B gathers
x at (input channel and tap n, position k), C is w. k counts positions of all images, and
neighbouring work-items read neighbouring positions. No kernel of its own.

sizes               text of the problem's sizes
checked             some tap of some position reads padding
full                every tile has all its rows
</%doc>
${sizes}
#define PLANE (HEIGHT * WIDTH)
#define C_ROW N

// A work-item copies every APART-th row of A and column of B, of one position per tile.
#define APART (LOCAL_SIZE / TILE_K)

typedef struct {
    __global const elem_t *y, *x;
    int k${"" if full else ", rows"};
    index_t column[LOADS_B];
% if checked:
    int tap[LOADS_B];
% endif
} Operands;

static inline void locate(Operands *at, __global const elem_t *y, __global const elem_t *x,
                          int phase, int group, int m0, int n0, int first, int id)
{
    const int m = m0 + id / TILE_K;
    at->y = y + ((long)group * M + m) * (OUT_H * OUT_W);
    at->x = x + (long)group * DEPTH * PLANE;
    at->k = first * TILE_K + id % TILE_K;
% if not full:
    at->rows = M - m;
% endif
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        const int n = min(n0 + id / TILE_K + l * APART, N - 1);
        const int tap = n % (KERNEL_H * KERNEL_W);
        const int h = tap / KERNEL_W * DILATION_H;
        const int w = tap % KERNEL_W * DILATION_W;
        at->column[l] = (index_t)(n / (KERNEL_H * KERNEL_W)) * PLANE + h * WIDTH + w;
% if checked:
        at->tap[l] = h << 16 | w;
% endif
    }
}

static inline void fetch(Operands *at, float *next_a, float *next_b)
{
    const bool real = at->k < K;
    const index_t image = at->k / (OUT_H * OUT_W);
    const int q = at->k % (OUT_H * OUT_W);
    const int h = q / OUT_W * STRIDE_H - PAD_H, w = q % OUT_W * STRIDE_W - PAD_W;
    __global const elem_t *y = at->y + image * GROUPS * M * (OUT_H * OUT_W) + q;
    __global const elem_t *x = at->x + image * GROUPS * DEPTH * PLANE + h * WIDTH + w;
#pragma unroll
    for (int l = 0; l < LOADS_A; ++l) {
        next_a[l] = real${"" if full else " && l * APART < at->rows"} ? LOAD1(y + (index_t)(l * APART) * (OUT_H * OUT_W)) : 0.0f;
    }
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
% if checked:
        const bool inside = real && (uint)(h + (at->tap[l] >> 16)) < HEIGHT
            && (uint)(w + (at->tap[l] & 0xffff)) < WIDTH;
% else:
        const bool inside = real;
% endif
        next_b[l] = inside ? LOAD1(x + at->column[l]) : 0.0f;
    }
    at->k += TILE_K;
}

static inline void keep(__local float *tile_a, __local float *tile_b,
                        const float *next_a, const float *next_b, int id)
{
#pragma unroll
    for (int l = 0; l < LOADS_A; ++l) {
        tile_a[id % TILE_K * ROW_A + id / TILE_K + l * APART] = next_a[l];
    }
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        tile_b[id % TILE_K * ROW_B + id / TILE_K + l * APART] = next_b[l];
    }
}

/* Where row 0 of column n of C is stored. */
static inline index_t c_column(int phase, int group, int n)
{
    return (index_t)group * M * N + n;
}
