<%doc>
Winograd convolution for CPUs, one block of tiles at a time, so that its data stays in the caches.

A work-item is alone in its group. It transforms the input of tile_rows rows of tiles, all channels,
into its own scratch memory; then, panel of filters by panel, it multiplies at every point and
transforms back. Scratch: lines [IN_TILE][LINE], V [POINTS][CHANNELS][V_TILES],
M [POINTS][BLOCK][item_k], and U of one panel where the filters are transformed inside.

Input: rows are combined first, in vectors along the width; the result goes to `lines`, whose
borders are zero; from there vectors of tiles are picked with shuffles and columns are combined.
Output: vectors of filters are transposed to runs of out_tile pixels.

Where the channels of a pixel are neighbours (channels_last), they are the lanes of both transforms:
there are no lines, and V is [POINTS][BLOCK][V_TILE], channels last.

tile_rows        rows of tiles per block (of the whole batch: images follow one another)
item_t, item_k   tiles and filters of the product that one register tile holds
vec_k            lanes of filters; item_k is a multiple
vec_t, vec_x     lanes of tiles and of pixels in the input transform (derived)
in_pixels, vec_c channels of a pixel are neighbours; lanes of channels in the input transform
unroll_c         channels written out per iteration of the product
workers          work-items that share the blocks
split_k          work-items that share the filters of a block; each transforms the input itself
filters_inside   transform a panel's filters here, not in a launch of its own: w is read, not u
rest             columns of the last tile of a row where out_tile does not divide the width, or 0
edge_k           item_k does not divide the filters
bias, residual   what is added: by filter, and as the target lies
dtype, activation   storage types and epilogue
input_axes, output_axis, filter_tile   functions of the transforms
given            names of sizes that are arguments, since the batch is free
cut              the filter is cut into blocks: CHANNELS has the SOURCE_CHANNELS of each block, of the first block
                 first, and block (i, j) reads TAPS * i rows and TAPS * j columns further on
chunk            channels whose products a sum in registers adds, so that it keeps its digits; 0: all
store_channels   text of the function that stores filters of a pixel, for pixels
phases, phase_names       statements that pick every out_tile-th pixel, and their results
</%doc>
<%!
    from oclgen.families.parts.expressions import load, store
    from oclgen.render import vector
%>\
<%
    vectors = range(item_k // vec_k)
    transposed = pixels.transposed
    source_c = "SOURCE_CHANNELS" if cut else "CHANNELS"
    filter_at = "k" if in_pixels else "(long)k * (OUT_H * OUT_W)"
    last_k = f"min(k0 + {item_k}, FILTERS)" if edge_k else f"k0 + {item_k}"
%>\
${preamble}
${activation}
${defines}

${input_axes}

${output_axis}
% if filters_inside:

${filter_tile}
% endif
% if in_pixels:

${store_channels}
% elif transposed:

static inline ${vector(vec_k)} zip_low(const ${vector(vec_k)} a, const ${vector(vec_k)} b)
{
    ${vector(vec_k)} r;
    r.even = a.lo;
    r.odd = b.lo;
    return r;
}

static inline ${vector(vec_k)} zip_high(const ${vector(vec_k)} a, const ${vector(vec_k)} b)
{
    ${vector(vec_k)} r;
    r.even = a.hi;
    r.odd = b.hi;
    return r;
}
% endif

% if in_pixels:
/* V of one tile, all channels; `row` and `column` are its first pixel, negative in the padding. */
static void input_tile(
    __global const elem_t *image, const int row, const int column, __global float *v)
{
    for (int first = 0; first < ${source_c}; first += ${vec_c}) {
        const int c = min(first, ${source_c} - ${vec_c}); /* the last vector overlaps the one before */
        ${vector(vec_c)} d[POINTS];
#pragma unroll
        for (int i = 0; i < IN_TILE; ++i) {
            const bool is_row = (uint)(row + i) < IN_H;
#pragma unroll
            for (int j = 0; j < IN_TILE; ++j) {
                d[i * IN_TILE + j] = 0.0f;
                if (is_row && (uint)(column + j) < IN_W) {
                    d[i * IN_TILE + j] = LOAD${vec_c}(image + ((row + i) * IN_W + column + j) * ${source_c} + c);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < IN_TILE; ++j) {
            channels_axis(d + j, IN_TILE);
        }
#pragma unroll
        for (int i = 0; i < IN_TILE; ++i) {
            channels_axis(d + i * IN_TILE, 1);
        }
#pragma unroll
        for (int p = 0; p < POINTS; ++p) {
            ${store(vec_c, "d[p]", "v + p * V_POINT + c")};
        }
    }
}
% else:
/* V of one row of tiles of one plane; `row` is the first input row, negative in the padding. */
static void input_row(
    __global const elem_t *plane, const int row, __global float *lines, __global float *v)
{
    for (int x = 0; x < IN_W; x += ${vec_x}) {
        const int column = min(x, IN_W - ${vec_x}); /* the last vector overlaps the one before */
        __global const elem_t *in = plane + (long)row * IN_W + column;
        ${vector(vec_x)} d[IN_TILE];
#pragma unroll
        for (int i = 0; i < IN_TILE; ++i) {
            d[i] = 0.0f;
            if ((uint)(row + i) < IN_H) {
                d[i] = LOAD${vec_x}(in + i * IN_W);
            }
        }
        pixels_axis(d, 1);
#pragma unroll
        for (int i = 0; i < IN_TILE; ++i) {
            ${store(vec_x, "d[i]", "lines + i * LINE + PAD_W + column")};
        }
    }
% if cut:
    for (int b = 0; b < BLOCKS_W; ++b, lines += TAPS, v += SOURCE_CHANNELS * V_TILES)
% endif
    for (int t = 0; t < TILES_W; t += ${vec_t}) {
#pragma unroll
        for (int i = 0; i < IN_TILE; ++i) {
            __global const float *line = lines + i * LINE + t * OUT_TILE;
% for statement in phases:
            ${statement}
% endfor
            ${vector(vec_t)} d[IN_TILE] = {${", ".join(phase_names)}};
            tiles_axis(d, 1);
#pragma unroll
            for (int j = 0; j < IN_TILE; ++j) {
                ${store(vec_t, "d[j]", "v + (i * IN_TILE + j) * V_POINT + t")};
            }
        }
    }
}
% endif

<%def name="product(count)">\
% for i in range(count):
% for j in vectors:
        ${vector(vec_k)} acc${i}_${j} = 0.0f;
% endfor
% endfor
        __global const float *a = v + t${" * V_TILE" if in_pixels else ""};
        __global const float *b = u;
#pragma unroll ${unroll_c}
        for (int c = 0; c < ${"channels" if chunk else "CHANNELS"}; ++c, a += ${"1" if in_pixels else "V_TILES"}, b += ${item_k}) {
% for j in vectors:
            const ${vector(vec_k)} b${j} = ${load(vec_k, f"b + {j * vec_k}")};
% endfor
% for i in range(count):
% for j in vectors:
            acc${i}_${j} = (${vector(vec_k)})(a[${f"{i} * V_TILE" if in_pixels else i}]) * b${j} + acc${i}_${j};
% endfor
% endfor
        }
% for i in range(count):
% for j in vectors:
<% place = f"m + (t + {i}) * {item_k} + {j * vec_k}" %>\
% if chunk:
        if (more) {
            acc${i}_${j} += ${load(vec_k, place)};
        }
% endif
        ${store(vec_k, f"acc{i}_{j}", place)};
% endfor
% endfor
</%def>\
% if chunk:
/* M of one point: BLOCK tiles by ${item_k} filters, summed over channels, and added to what is there if `more`. */
static void product(
    __global const float *v, __global const float *u, __global float *m, const int channels, const bool more)
% else:
/* M of one point: BLOCK tiles by ${item_k} filters, summed over the channels. */
static void product(
    __global const float *v, __global const float *u, __global float *m)
% endif
{
% if block >= item_t:
    for (int t = 0; t + ${item_t} <= BLOCK; t += ${item_t}) {
${product(item_t)}\
    }
% endif
% if block % item_t:
    {
        const int t = BLOCK / ${item_t} * ${item_t};
${product(block % item_t)}\
    }
% endif
}

/* One tile of ${vec_k} filters from k on: transform back, add the bias${" and the residual" if residual else ""}, activate, store. */
static void output_tile(
    __global const float *m, const int k, const int row, const int column,
% if bias:
    __global const elem_t *bias,
% endif
% if residual:
    __global const elem_t *residual,
% endif
    __global elem_t *out)
{
    ${vector(vec_k)} d[POINTS];
#pragma unroll
    for (int p = 0; p < POINTS; ++p) {
        d[p] = ${load(vec_k, "m + p * M_POINT")};
    }
#pragma unroll
    for (int j = 0; j < IN_TILE; ++j) {
        output_axis(d + j, IN_TILE);
    }
#pragma unroll
    for (int i = 0; i < OUT_TILE; ++i) {
        output_axis(d + i * IN_TILE, 1);
    }
% if in_pixels:
/* not unrolled: a copy of store_channels for every pixel takes compilers minutes */
#pragma unroll 1
    for (int i = 0; i < OUT_TILE; ++i) {
#pragma unroll 1
        for (int j = 0; j < OUT_TILE; ++j) {
            if (row + i < OUT_H && column + j < OUT_W) {
                const int at = ((row + i) * OUT_W + column + j) * FILTERS;
                store_channels(
                    d[i * IN_TILE + j], out + at, ${"bias + k, " if bias else ""}${"residual + at, " if residual else ""}FILTERS - k);
            }
        }
    }
}
% else:
% if bias and edge_k and vec_k > 1:
    const ${vector(vec_k)} shift = (${vector(vec_k)})(
% for s in range(vec_k):
        LOAD1(bias + min(k + ${s}, FILTERS - 1))${"," if s + 1 < vec_k else ");"}
% endfor
% elif bias:
    const ${vector(vec_k)} shift = LOAD${vec_k}(bias + ${"min(k, FILTERS - 1)" if edge_k else "k"});
% endif
#pragma unroll
    for (int i = 0; i < OUT_TILE; ++i) {
        if (row + i >= OUT_H) {
            break;
        }
        __global elem_t *to = out + (row + i) * OUT_W + column;
% for j in range(out_tile):
        const ${vector(vec_k)} y${j} = ${"" if residual else "ACT"}(d[i * IN_TILE + ${j}]${" + shift" if bias else ""});
% endfor
% if rest:
        if (column + OUT_TILE <= OUT_W)
% endif
        {
% if transposed and out_tile == 4:
            const ${vector(vec_k)} low02 = zip_low(y0, y2), high02 = zip_high(y0, y2);
            const ${vector(vec_k)} low13 = zip_low(y1, y3), high13 = zip_high(y1, y3);
            const ${vector(vec_k)} q0 = zip_low(low02, low13), q1 = zip_high(low02, low13);
            const ${vector(vec_k)} q2 = zip_low(high02, high13), q3 = zip_high(high02, high13);
% elif transposed:
            const ${vector(vec_k)} q0 = zip_low(y0, y1), q1 = zip_high(y0, y1);
% endif
% for s in range(vec_k):
% for line in pixels.run(s):
            ${line}
% endfor
% endfor
        }
% if rest:
        else {
% for s in range(vec_k):
% for line in pixels.rest(s):
            ${line}
% endfor
% endfor
        }
% endif
    }
}
% endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_blocked(
    __global const elem_t *restrict source, const long offset_source,
% if filters_inside:
    __global const elem_t *restrict w, const long offset_w,
% if in_pixels:
    const long w_filter, const long w_channel, const long w_row, const long w_column,
% endif
% else:
    __global const float *restrict u, const long offset_u,
% endif
${term_parameters}\
    __global elem_t *restrict target, const long offset_target,
    __global float *restrict scratch, const long offset_scratch${"".join(f", const int {name}" for name in given)})
{
    const int worker = get_global_id(0), share = get_global_id(1);
    __global float *lines = scratch + offset_scratch + (long)(share * ${workers} + worker) * SLOT;
    __global float *v = lines + LINES;
    __global float *m = v + POINTS * V_POINT;
% if filters_inside:
    __global float *own = m + POINTS * M_POINT;
% endif
% if not in_pixels:
    for (int i = 0; i < LINES; ++i) {
        lines[i] = 0.0f;
    }
% endif
    for (int first = worker * ${tile_rows}; first < TILE_ROWS; first += ${workers * tile_rows}) {
% if in_pixels:
        for (int r = 0; r < ${tile_rows}; ++r) {
            const int tile_row = min(first + r, TILE_ROWS - 1);
            __global const elem_t *image = source + offset_source
                + (long)(tile_row / TILES_H) * ${source_c} * (IN_H * IN_W);
            for (int t = 0; t < TILES_W; ++t) {
% if cut:
                for (int b = 0; b < CHANNELS / SOURCE_CHANNELS; ++b) {
                    input_tile(image, tile_row % TILES_H * OUT_TILE - PAD_H + b / BLOCKS_W * TAPS,
                        t * OUT_TILE - PAD_W + b % BLOCKS_W * TAPS,
                        v + (r * TILES_W + t) * V_TILE + b * SOURCE_CHANNELS);
                }
% else:
                input_tile(image, tile_row % TILES_H * OUT_TILE - PAD_H, t * OUT_TILE - PAD_W,
                    v + (r * TILES_W + t) * V_TILE);
% endif
            }
        }
% else:
        for (int c = 0; c < ${source_c}; ++c) {
            for (int r = 0; r < ${tile_rows}; ++r) {
                const int tile_row = min(first + r, TILE_ROWS - 1);
                __global const elem_t *plane = source + offset_source
                    + ((long)(tile_row / TILES_H) * ${source_c} + c) * (IN_H * IN_W);
% if cut:
                for (int b = 0; b * BLOCKS_W * SOURCE_CHANNELS < CHANNELS; ++b) {
                    input_row(plane, tile_row % TILES_H * OUT_TILE - PAD_H + b * TAPS, lines,
                        v + (b * BLOCKS_W * SOURCE_CHANNELS + c) * V_TILES + r * TILES_W);
                }
% else:
                input_row(plane, tile_row % TILES_H * OUT_TILE - PAD_H, lines,
                    v + c * V_TILES + r * TILES_W);
% endif
            }
        }
% endif
        for (int k0 = share * ${item_k}; k0 < FILTERS; k0 += ${split_k * item_k}) {
% if filters_inside:
            for (int c = 0; c < CHANNELS; ++c) {
                for (int k = 0; k < ${item_k}; k += ${vec_k}) {
                    filter_tile(w + offset_w, ${"w_filter, w_channel, w_row, w_column, " if in_pixels else ""}k0 + k, ${"c % SOURCE_CHANNELS, c / SOURCE_CHANNELS" if cut else "c"}, own + c * ${item_k} + k, U_POINT);
                }
            }
% else:
            __global const float *own = u + offset_u + (long)k0 * CHANNELS;
% endif
            for (int p = 0; p < POINTS; ++p) {
% if chunk:
                for (int c = 0; c < CHANNELS; c += ${chunk}) {
                    product(v + p * V_POINT + c${"" if in_pixels else " * V_TILES"}, own + (long)p * U_POINT + c * ${item_k},
                        m + p * M_POINT, min(${chunk}, CHANNELS - c), c > 0);
                }
% else:
                product(v + p * V_POINT, own + (long)p * U_POINT, m + p * M_POINT);
% endif
            }
            for (int t = 0; t < BLOCK && first + t / TILES_W < TILE_ROWS; ++t) {
                const int tile_row = first + t / TILES_W;
% if residual:
                __global const elem_t *theirs = residual + offset_residual
                    + (long)(tile_row / TILES_H) * FILTERS * (OUT_H * OUT_W);
% endif
                __global elem_t *image = target + offset_target
                    + (long)(tile_row / TILES_H) * FILTERS * (OUT_H * OUT_W);
                for (int k = k0; k < ${last_k}; k += ${vec_k}) {
                    output_tile(m + t * ${item_k} + k - k0, k,
                        tile_row % TILES_H * OUT_TILE, t % TILES_W * OUT_TILE,
                        ${"bias + offset_bias, " if bias else ""}${f"theirs + {filter_at}, " if residual else ""}image + ${filter_at});
                }
            }
        }
    }
}
