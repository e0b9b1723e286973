"""OpenCL C that samples images and volumes at positions, and adds gradients of both."""

from __future__ import annotations

from itertools import product

BILINEAR, NEAREST, BICUBIC = range(3)

HELPERS = """\
enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };
#define FAR (T)1e9 // an item further away than any image reaches

// moves a position into [0, size - 1] as the padding says; *slope is multiplied by its derivative
T padded(T at, const long size, const long padding, const long align, T *slope)
{
    if (padding == ZEROS)
        return at;
    if (padding == REFLECTION) {
        const T low = align ? 0 : (T)-0.5;
        const T span = align ? size - 1 : size;
        if (span == 0) {
            *slope = 0;
            return 0;
        }
        const T distance = fabs(at - low);
        const bool turned = fmod(floor(distance / span), 2) != 0;
        const T extra = fmod(distance, span);
        if ((at < low) != turned)
            *slope = -*slope;
        at = low + (turned ? span - extra : extra);
    }
    if (!(at > 0 && at < size - 1))
        *slope = 0;
    return at > 0 ? fmin(at, (T)(size - 1)) : 0;
}

T cubic(const T x, T *slope)
{
    const T a = (T)-0.75, d = fabs(x);
    const T sign = x < 0 ? -1 : 1;
    if (d <= 1) {
        *slope = sign * ((3 * (a + 2) * d - 2 * (a + 3)) * d);
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    }
    *slope = sign * ((3 * a * d - 10 * a) * d + 8 * a);
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

// finds the items around a position in [-1, 1], their weights and how those change with it; an
// item outside is numbered -1
int taps(const T position, const long size, const long kind, const long padding, const long align,
         long *item, T *weight, T *slope)
{
    T scale = (T)(align ? size - 1 : size) / 2;
    T at = align ? (position + 1) * scale : ((position + 1) * size - 1) / 2;
    if (kind != BICUBIC) {
        at = padded(at, size, padding, align, &scale);
        if (!(fabs(at) < FAR))
            at = -100;
    }
    const T base = kind == NEAREST ? rint(at) : floor(at);
    const T part = at - base;
    const int count = kind == NEAREST ? 1 : kind == BILINEAR ? 2 : 4;
    for (int k = 0; k < count; ++k) {
        if (kind != BICUBIC)
            item[k] = (long)base + k;
        if (kind == NEAREST) {
            weight[k] = 1;
            slope[k] = 0;
        } else if (kind == BILINEAR) {
            weight[k] = k ? part : 1 - part;
            slope[k] = k ? scale : -scale;
        } else {
            T steepness, ignored = 1;
            weight[k] = cubic(part + 1 - k, &steepness);
            slope[k] = steepness * scale;
            const T tap = padded(base - 1 + k, size, padding, align, &ignored);
            item[k] = fabs(tap) < FAR ? (long)tap : -1;
        }
        if (item[k] < 0 || item[k] >= size)
            item[k] = -1;
    }
    return count;
}
"""

LOCATE = """\
long item_x[4], item_y[4], item_z[4];
T weight_x[4], weight_y[4], weight_z[4], slope_x[4], slope_y[4], slope_z[4];
const int count_x = taps(grid_x, width, mode, padding, align, item_x, weight_x, slope_x);
const int count_y = taps(grid_y, height, mode, padding, align, item_y, weight_y, slope_y);
const int count_z = !volume ? 1
    : taps(grid_z, depth, mode, padding, align, item_z, weight_z, slope_z);
if (!volume) {
    item_z[0] = 0;
    weight_z[0] = 1;
    slope_z[0] = 0;
}
// NaN where a bicubic position is not finite, else 0: the CPU multiplies its weights by the zeros
// outside of the image, too, which are not read here
const T nothing = mode == BICUBIC ? (weight_x[0] + weight_y[0]) * 0 : 0;
"""

WALK = """\
for (int i = 0; i < count_z; ++i) {
    for (int j = 0; j < count_y; ++j) {
        for (int k = 0; k < count_x; ++k) {
            if (item_z[i] < 0 || item_y[j] < 0 || item_x[k] < 0)
                continue;
            const long at = item_z[i] * x_step_z + item_y[j] * x_step_y + item_x[k] * x_step_x;
%s        }
    }
}
"""

ROW = """\
const bool is_in{r} = item_z[{i}] >= 0 && item_y[{j}] >= 0;
const long row{r} = item_z[{i}] * x_step_z + item_y[{j}] * x_step_y;
const T weight{r} = weight_z[{i}] * weight_y[{j}];
"""
CHANNELS = """\
const long mine = min(share, channels - first);
for (long c = 0; c < mine; c += AT_ONCE) {
SUMS
}
"""
SUM = """\
    if (is_in{r} && item_x[{k}] >= 0{if_mine})
        sum{n} += weight{r} * weight_x[{k}]
            * LOAD_x(x_at + (c + {n}) * x_step_c + row{r} + item_x[{k}] * x_step_x);
"""
STORE = "    if (true{if_mine})\n        STORE_y(y_at + (c + {n}) * y_step_c, sum{n});\n"
FEW = {BILINEAR: 2, NEAREST: 1, BICUBIC: 4}
"""Taps along a dimension, by mode."""


def forward(mode: int, volume: bool, at_once: int) -> str:
    """Return the body that samples channels.

    Args:
        mode: how.
        volume: whether there are three dimensions.
        at_once: channels whose items are loaded before a result is stored.
    """
    few = FEW[mode]
    rows = list(product(range(few if volume else 1), range(few)))
    located = "".join(ROW.format(r=r, i=i, j=j) for r, (i, j) in enumerate(rows))
    mine = [f" && c + {n} < mine" if n else "" for n in range(at_once)]
    sums = "".join(f"    T sum{n} = nothing;\n" for n in range(at_once))
    for n, r, k in product(range(at_once), range(len(rows)), range(few)):
        sums += SUM.format(n=n, r=r, k=k, if_mine=mine[n])
    sums += "".join(STORE.format(n=n, if_mine=each) for n, each in enumerate(mine))
    return LOCATE + located + CHANNELS.replace("AT_ONCE", str(at_once)).replace("SUMS\n", sums)


BACKWARD = (
    LOCATE
    + "T grad_x = nothing, grad_y = nothing, grad_z = 0;\n"
    + WALK
    % """\
            T along = 0;
            const T weight = weight_z[i] * weight_y[j] * weight_x[k];
            for (long c = 0; c < channels; ++c) {
                const T grad = LOAD_y(y_at + c * y_step_c);
                along += grad * LOAD_x(x_at + c * x_step_c + at);
                UPDATE
            }
            grad_x += along * slope_x[k] * weight_y[j] * weight_z[i];
            grad_y += along * weight_x[k] * slope_y[j] * weight_z[i];
            grad_z += along * weight_x[k] * weight_y[j] * slope_z[i];
"""
)

UPDATE = "update(total_data + total_at + c * x_step_c + at, grad * weight);"

OWNED = (
    """\
for (long point = 0; point < points; ++point) {
    const long begin = grid_at + point * (volume ? 3 : 2);
    const T grid_x = LOAD_grid(begin), grid_y = LOAD_grid(begin + 1);
    const T grid_z = volume ? LOAD_grid(begin + 2) : 0;
"""
    + LOCATE
    + WALK % "            ADD(at, point, weight_z[i] * weight_y[j] * weight_x[k]);\n"
    + "}\n"
)
