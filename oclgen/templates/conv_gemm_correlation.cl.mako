<%doc>
Operands of conv_gemm for a correlation (fwd, or one phase of bwd_data): A is w[m, k], B gathers
what is read at (n, k), C is scattered to the phase's positions. No kernel of its own.

sizes               names and values of the correlation's sizes
taps_outer          k counts channels within taps; else taps within channels
</%doc>
% for name, value in sizes.items():
#define ${name} ${value}
% endfor

// Along k the weights are neighbours; along n the positions are.
#define A_K(e) ((e) % TILE_K)
#define A_M(e) ((e) / TILE_K)
#define B_K(e) ((e) / TILE_N)
#define B_N(e) ((e) % TILE_N)

% if taps_outer:
#define CHANNEL(k) ((k) % DEPTH)
#define TAP(k) ((k) / DEPTH)
% else:
#define CHANNEL(k) ((k) / (TAPS_H * TAPS_W))
#define TAP(k) ((k) % (TAPS_H * TAPS_W))
% endif

float load_a(__global const elem_t *w, int group, int m, int k, int k_end)
{
    if (m >= M || k >= k_end) {
        return 0.0f;
    }
    const int r = KERNEL_FIRST_H + TAP(k) / TAPS_W * KERNEL_STEP_H;
    const int s = KERNEL_FIRST_W + TAP(k) % TAPS_W * KERNEL_STEP_W;
    return LOAD1(w + group * WEIGHT_GROUP + m * WEIGHT_OUT + CHANNEL(k) * WEIGHT_IN
                 + r * KERNEL_W + s);
}

float load_b(__global const elem_t *x, int group, int n, int k, int k_end)
{
    const int q = n % (RESULTS_H * RESULTS_W);
    const int h = q / RESULTS_W * STEP_H + TAP(k) / TAPS_W * TAP_STEP_H + ORIGIN_H;
    const int w = q % RESULTS_W * STEP_W + TAP(k) % TAPS_W * TAP_STEP_W + ORIGIN_W;
    if (n >= N || k >= k_end || h < 0 || h >= READ_H || w < 0 || w >= READ_W) {
        return 0.0f;
    }
    const int image = n / (RESULTS_H * RESULTS_W);
    const long plane = (long)(image * GROUPS + group) * DEPTH + CHANNEL(k);
    return LOAD1(x + plane * (READ_H * READ_W) + h * READ_W + w);
}

long c_index(int group, int m, int n)
{
    const int q = n % (RESULTS_H * RESULTS_W);
    const int h = FIRST_H + q / RESULTS_W * STORE_STEP_H;
    const int w = FIRST_W + q % RESULTS_W * STORE_STEP_W;
    const int image = n / (RESULTS_H * RESULTS_W);
    return ((long)(image * GROUPS + group) * M + m) * (WRITTEN_H * WRITTEN_W) + h * WRITTEN_W + w;
}
