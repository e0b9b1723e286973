<%doc>
Correlation in bf16 or fp16 in the tile registers of AMX: a row of a tile is a pixel, a column a channel of
the result.

Images come as pixels whose summed channels are neighbours, with zeros around them where taps reach
beyond; weights as pairs of these channels, [groups][blocks][taps][pairs][block]. Windows of a volume lie
STEP_D slices apart, and their slices TAP_STEP_D. A step multiplies
RESULTS pixels of a row of results, 32 channels of one tap each, with 16 channels of the result.
Where 32 does not divide the channels, the last ones of all taps follow with narrower tiles.

activation          epilogue, with bias and residual
sizes               names and values of the correlation's sizes
strips              tiles of pixels per work-item
vecs                tiles of channels per work-item
loop_m              groups of `strips` that a work-item computes one after the other
channels_fastest    neighbouring work-items differ in channels, else in positions
in_pixels           channels of a pixel of the output are neighbours, else pixels of a plane
counts              pixels of a tile that are stored: of all tiles but a row's last, and of that one
store_step          distance of neighbouring results in the output
steps, rest         whole steps of 32 channels of a tap, and channels of the narrower one
overwritten         pixels behind a pixel that store over what it stored past its channels: whole vectors take less
                    time than parts. 0 if there are none
together            groups that are one here, with zeros between them in the weights
taps_w              taps of a row
own                 text of the function that stores: transpose (planes), store_channels (pixels)
preamble, tiles     LOAD and STORE; the tile registers
</%doc>
<%namespace name="planes" file="store_planes.cl.mako"/>\
<%
    block_dim, position_dim = (0, 1) if channels_fastest else (1, 0)
    rows, columns = range(strips), range(vecs)
    sums = strips * vecs
    places = [(i, j, i * vecs + j) for i in rows for j in columns]
    # an operand's register by its number; narrow steps have registers of their own, which leave one of each
    both = steps > 0 and rest > 0
    first_b = sums + (1 if both else strips)
    def of_a(i, narrow):
        return sums + (2 * narrow if both else i)
    def of_b(j, narrow):
        return first_b + (2 * narrow if both else j)
    # back and forth, so that the last tile of A serves the next of B
    order = [(i, j) for j in columns for i in (rows if j % 2 == 0 else reversed(rows))]
    block = 16 * vecs
%>\
${preamble}
${tiles}
${activation}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define BLOCKS ((CHANNELS + ${block - 1}) / ${block})
#define TILES (IMAGES * RESULTS_H * COLUMNS)
#define WRITTEN_PLANE (WRITTEN_H * WRITTEN_W)
#define WRITTEN_IMAGE (GROUPS * CHANNELS * WRITTEN_PLANE)
#define WRITTEN_PIXEL ${"(GROUPS * CHANNELS)" if in_pixels else 1}

${own}

% if together > 1:
#define OWN_CHANNELS (CHANNELS / ${together})
#define OWN_DEPTH (DEPTH / ${together})

// Sums NaNs of a pixel anew over the channels of their own group: of what is not finite the zeros between
// groups make a NaN, too.
void sum_own(float *sums, __global const elem_t *in, __global const elem_t *weights, const int channel)
{
    for (int j = 0; j < 16 && channel + j < CHANNELS; ++j) {
        if (!isnan(sums[j])) {
            continue;
        }
        const int first = (channel + j) / OWN_CHANNELS * OWN_DEPTH;
        sums[j] = 0.0f;
        for (int t = 0; t < TAPS_H * ${taps_w}; ++t) {
            const int ty = t / ${max(taps_w, 1)}, tx = t % ${max(taps_w, 1)};
            __global const elem_t *pixel = in + (ty * TAP_STEP_H * READ_W + tx * TAP_STEP_W) * PIXEL;
            __global const elem_t *w = weights + 2 * j
                + ((KERNEL_FIRST_H + ty * KERNEL_STEP_H) * KERNEL_W + KERNEL_FIRST_W + tx * KERNEL_STEP_W) * (WORDS * ${2 * block});
            for (int d = first; d < first + OWN_DEPTH; ++d) {
                sums[j] += LOAD1(pixel + d) * LOAD1(w + d / 2 * ${2 * block} + d % 2);
            }
        }
    }
}

% endif
% for count in () if in_pixels else sorted(set(counts)):
${planes.store(count)}\
% endfor
<%def name="taps(count)">\
        for (int tz = 0; tz < TAPS_D; ++tz) {
            for (int ty = 0; ty < TAPS_H; ++ty) {
                for (int tx = 0; tx < TAPS_W; ++tx) {
                    const long at = tz * (TAP_STEP_D * (long)READ_IMAGE) + (ty * TAP_STEP_H * READ_W + tx * TAP_STEP_W) * PIXEL${f" + {32 * steps}" if not count else ""};
                    const int tap = tz * TAPS + (KERNEL_FIRST_H + ty * KERNEL_STEP_H) * KERNEL_W + KERNEL_FIRST_W + tx * KERNEL_STEP_W;
                    __global const ushort *w = (__global const ushort *)weights + tap * (WORDS * ${2 * block})${f" + {32 * steps * block}" if not count else ""};
                    for (int step = 0; step < ${count or 1}; ++step) {
<% held = {} %>\
% for i, j in order:
<% a, b = of_a(i, count == 0), of_b(j, count == 0) %>\
% if held.get(b) != j:
                        TILE_LOAD(${b}, w + step * ${32 * block} + ${32 * j}, ${4 * block});
% endif
% if held.get(a) != i:
                        TILE_LOAD(${a}, in${i} + at + step * 32, 2 * STEP_W * PIXEL);
% endif
<% held |= {a: i, b: j} %>\
                        TILE_DOT(${i * vecs + j}, ${a}, ${b});
% endfor
                    }
                }
            }
        }
</%def>\
<%def name="stored(i, j, count)">\
% if in_pixels:
            for (int x = 0; x < ${count}; ++x) {
                __global elem_t *result = to + x * (${store_step} * WRITTEN_PIXEL);
                store_channels(
                    vload16(0, sums + ${256 * i * vecs + 16 * j} + x * ${block}), result,
% if bias:
                    bias + ${16 * j},
% endif
% if residual:
                    RESIDUAL(result),
% endif
                    ${f"x < {count - overwritten} ? 16 : " if overwritten else ""}CHANNELS - channel - ${16 * j});
            }
% else:
            {
                float16 rows[16];
                for (int x = 0; x < ${count}; ++x) {
                    rows[x] = vload16(0, sums + ${256 * i * vecs + 16 * j} + x * ${block});
                }
                store${count}(
                    rows, to,
% if bias:
                    bias + ${16 * j},
% endif
% if residual:
                    RESIDUAL(to),
% endif
                    CHANNELS - channel - ${16 * j});
            }
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_amx(
    __global const elem_t *restrict in, const long offset_in,
    __global const elem_t *restrict weights, const long offset_weights,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out)
{
    const int block = get_global_id(${block_dim});
    const int group = block / BLOCKS;
    const int channel = block % BLOCKS * ${block};
    const int first = (int)get_global_id(${position_dim}) * ${loop_m};

    in += offset_in + group * READ_GROUP + ((ORIGIN_H + PAD_H) * READ_W + ORIGIN_W + PAD_W) * PIXEL;
    weights += offset_weights + (long)block * (TAPS_D * TAPS * WORDS * ${2 * block});
% if bias:
    bias += offset_bias + group * CHANNELS + channel;
% endif
    out += offset_out + (group * CHANNELS + channel)${"" if in_pixels else " * WRITTEN_PLANE"}
        + (FIRST_H * WRITTEN_W + FIRST_W) * WRITTEN_PIXEL;
% if residual:
    residual += offset_residual + (group * CHANNELS + channel)${"" if in_pixels else " * WRITTEN_PLANE"}
        + (FIRST_H * WRITTEN_W + FIRST_W) * WRITTEN_PIXEL;
% endif

    TILE_REGISTERS;
    float sums[${256 * strips * vecs}] __attribute__((aligned(64)));
% if both:
    SET_TILES_OF_TWO(RESULTS, 64, ${2 * rest}, ${sums});
% else:
    SET_TILES(RESULTS, ${2 * rest or 64}, ${sums}, ${first_b});
% endif
    for (int next = first; next < first + ${loop_m} && next * ${strips} < TILES; ++next) {
% for i in rows:
<% tile = f"min(next * {strips} + {i}, TILES - 1)" if i else f"next * {strips}" %>\
        const int tile${i} = ${tile}, column${i} = tile${i} % COLUMNS, row${i} = tile${i} / COLUMNS % RESULTS_H;
        const long image${i} = tile${i} / (COLUMNS * RESULTS_H);
        __global const ushort *in${i} = (__global const ushort *)in
            + (image${i} / WINDOWS * SLICES + image${i} % WINDOWS * STEP_D) * READ_IMAGE
            + (row${i} * STEP_H * READ_W + column${i} * (RESULTS * STEP_W)) * PIXEL;
% endfor
% for _, _, t in places:
        TILE_ZERO(${t});
% endfor
% if steps:
${taps(steps)}\
% endif
% if rest:
${taps(0)}\
% endif
% for i, j, t in places:
        TILE_STORE(${t}, sums + ${16 * (16 * i * vecs + j)}, ${4 * block});
% endfor
% for i, j, _ in places:
        if (${f"next * {strips} + {i} < TILES && " if i else ""}channel + ${16 * j} < CHANNELS) {
% if together > 1:
            for (int x = 0; x < (column${i} < COLUMNS - 1 ? ${counts[0]} : ${counts[1]}); ++x) {
                float *of = sums + ${256 * i * vecs + 16 * j} + x * ${block};
                if (any(isnan(vload16(0, of)))) {
                    sum_own(
                        of, (__global const elem_t *)in${i} + x * STEP_W * PIXEL, weights + ${32 * j}, channel + ${16 * j});
                }
            }
% endif
            __global elem_t *to = out + image${i} * WRITTEN_IMAGE
                + (row${i} * (STORE_STEP_H * WRITTEN_W) + column${i} * (RESULTS * ${store_step})) * WRITTEN_PIXEL
                + ${16 * j}${"" if in_pixels else " * WRITTEN_PLANE"};
% if counts[0] == counts[1]:
${stored(i, j, counts[0])}\
% else:
            if (column${i} < COLUMNS - 1) {
${stored(i, j, counts[0])}\
            } else {
${stored(i, j, counts[1])}\
            }
% endif
        }
% endfor
    }
    TILES_DONE;
}
