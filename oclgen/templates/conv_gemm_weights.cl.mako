<%doc>
Operands of conv_gemm for the gradient of the weights: A is y at (channel m, position k), B gathers
x at (input channel and tap n, position k), C is w. k counts positions of all images. No kernel of
its own.

sizes               names and values of the problem's sizes
</%doc>
% for name, value in sizes.items():
#define ${name} ${value}
% endfor

// Along k the positions are neighbours, in both operands.
#define A_K(e) ((e) % TILE_K)
#define A_M(e) ((e) / TILE_K)
#define B_K(e) ((e) % TILE_K)
#define B_N(e) ((e) / TILE_K)

float load_a(__global const elem_t *y, int group, int m, int k, int k_end)
{
    if (m >= M || k >= k_end) {
        return 0.0f;
    }
    const int image = k / (OUT_H * OUT_W);
    const long plane = (long)(image * GROUPS + group) * M + m;
    return LOAD1(y + plane * (OUT_H * OUT_W) + k % (OUT_H * OUT_W));
}

float load_b(__global const elem_t *x, int group, int n, int k, int k_end)
{
    const int tap = n % (KERNEL_H * KERNEL_W);
    const int q = k % (OUT_H * OUT_W);
    const int h = q / OUT_W * STRIDE_H + tap / KERNEL_W * DILATION_H - PAD_H;
    const int w = q % OUT_W * STRIDE_W + tap % KERNEL_W * DILATION_W - PAD_W;
    if (n >= N || k >= k_end || h < 0 || h >= HEIGHT || w < 0 || w >= WIDTH) {
        return 0.0f;
    }
    const int image = k / (OUT_H * OUT_W);
    const long plane = (long)(image * GROUPS + group) * DEPTH + n / (KERNEL_H * KERNEL_W);
    return LOAD1(x + plane * (HEIGHT * WIDTH) + h * WIDTH + w);
}

long c_index(int group, int m, int n)
{
    return (long)(group * M + m) * N + n;
}
