<%doc>
Direct correlation in registers for CPUs: vector lanes are channels of the result, no local memory.

A work-item computes vecs * vec channels of item_x neighbouring results of a row: weights, packed
so that lanes are channels, are loaded as vectors and each input element is broadcast against them.
In planes results are transposed before they are stored; in pixels (channels_last) their lanes are
neighbours. What lies in the padding is left out of the text: blocks of columns that reach the same
taps share one piece of code, and rows are skipped whole.

dtype, activation   storage type of input, output, bias (accumulation is fp32); epilogue
sizes               names and values of the correlation's sizes
pieces              pieces of code: blocks (None: all others), count of results, and runs of taps
                    that reach the same positions among them
images, item_x      images, and results along the row in each, per work-item
last_image          image with which work-items of the last ones begin where `images` does not divide
                    the batch, else None: the first are others', and are not stored
vec, vecs           lanes of a vector; vectors of channels per work-item
unroll              channels that are summed over per loop iteration
taps_outer          loop over kernel taps outside the channels; else inside
channels_fastest    neighbouring work-items differ in channels, else in positions
bias, residual      add bias[channel], and what lies as the output does
in_pixels           channels of a pixel of the output are neighbours, else pixels of a plane
pairs               None, or how `conv_pairs` has it: depths are pairs of bf16, the words whose
                    halves its instruction multiplies and adds
widened             images are fp32 whatever the storage type of the output is
store_step          distance of neighbouring results in the output
by_pixels           a pixel's vectors are stored one after the other: they are parts of a line, and
                    what lies between pixels is another launch's
own                 text of the function that stores: transpose (planes), store_channels (pixels)
</%doc>
<%!
    from itertools import product
    from oclgen.families.conv.conv_register_text import sums
    from oclgen.families.parts.expressions import branch, load
    from oclgen.render import vector
%>\
<%namespace name="planes" file="store_planes.cl.mako"/>\
<%
    vf = vector(vec)
    block_dim, position_dim = (0, 1) if channels_fastest else (1, 0)
    read_pixels = pairs.of_pixels if pairs else in_pixels
    packed_by_pixel = bool(pairs) or in_pixels
    word, words = ("uint", vector(vec, "uint")) if pairs else ("float", vf)
    read = "PAIR" if pairs else "*" if widened else "LOAD1"
    def is_own(n):
        return f"if ({n} >= others) " if last_image is not None and n + 1 < images else ""
%>\
${preamble}
${activation}
% if pairs:
${pairs.dot}
#define PAIR(p) as_uint(vload2(0, (__global const ushort *)(p)))
% endif

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define BLOCK ${vec * vecs}
#define BLOCKS ((CHANNELS + BLOCK - 1) / BLOCK)
#define READ_PLANE ${pairs.plane if pairs else "(READ_H * READ_W)"}
#define WRITTEN_PLANE (WRITTEN_H * WRITTEN_W)
#define READ_IMAGE (GROUPS * DEPTH * READ_PLANE)
#define WRITTEN_IMAGE (GROUPS * CHANNELS * WRITTEN_PLANE)
% if read_pixels:
#define READ_PIXEL (GROUPS * DEPTH)
% endif
% if in_pixels:
#define WRITTEN_PIXEL (GROUPS * CHANNELS)
% endif

${own}

% for count in () if in_pixels else counts:
${planes.store(count)}\
% endfor
<%def name="tap(positions, j, indent)">\
${indent}const int wt = (c * PACKED_IN + i * PACKED_H + ${j} * PACKED_W) * BLOCK;
% if read_pixels:
${indent}const int at = (h * READ_W + w0 + ${j} * TAP_STEP_W) * READ_PIXEL + c;
% else:
${indent}const int at = c * READ_PLANE + h * READ_W + w0 + ${j} * TAP_STEP_W;
% endif
% for u in range(vecs):
${indent}const ${words} weight${u} = ${load(vec, f"weights + wt + {u * vec}")};
% endfor
% for n in range(images):
% for x in positions:
${indent}const ${word} x${n}_${x} = ${read}(in + at + ${n} * READ_IMAGE + ${x} * STEP_W${" * READ_PIXEL" if read_pixels else ""});
% for u in range(vecs):
% if pairs:
${indent}DOT_PAIRS(acc${n}_${x}_${u}, (${words})(x${n}_${x}), weight${u});
% else:
${indent}acc${n}_${x}_${u} = (${vf})(x${n}_${x}) * weight${u} + acc${n}_${x}_${u};
% endif
% endfor
% endfor
% endfor
</%def>\
<%def name="stored(n, x, u, test)">\
<% place = f"out + {n} * WRITTEN_IMAGE + {x * store_step} * WRITTEN_PIXEL + {u * vec}" %>\
            ${is_own(n)}${test}store_channels(
                acc${n}_${x}_${u}, ${place},
% if bias:
                bias + ${u * vec},
% endif
% if residual:
                RESIDUAL(${place}),
% endif
                CHANNELS - channel - ${u * vec});
</%def>\
<%def name="block(v)">\
% for n in range(images):
% for x in range(v.results):
        ${vf} ${", ".join(f"acc{n}_{x}_{u} = 0.0f" for u in range(vecs))};
% endfor
% endfor
% if taps_outer:
        for (int i = 0; i < TAPS_H; ++i) {
            const int h = h0 + i * TAP_STEP_H;
            if (h < 0 || h >= READ_H) {
                continue;
            }
% for run in v.runs:
% for j in run.span:
#pragma unroll ${unroll}
            for (int c = 0; c < DEPTH; ++c) {
${tap(run.reached, j, " " * 16)}\
            }
% endfor
% endfor
        }
% else:
#pragma unroll ${unroll}
        for (int c = 0; c < DEPTH; ++c) {
            for (int i = 0; i < TAPS_H; ++i) {
                const int h = h0 + i * TAP_STEP_H;
                if (h < 0 || h >= READ_H) {
                    continue;
                }
% for run in v.runs:
                // not unrolled: compilers would keep what taps share in registers and spill
#pragma unroll 1
                for (int j = ${run.span[0]}; j < ${run.span[-1] + 1}; ++j) {
${tap(run.reached, "j", " " * 20)}\
                }
% endfor
            }
        }
% endif
% for n, x, u in product(range(images if by_pixels else 0), range(v.results), range(vecs)):
${stored(n, x, u, f"if (channel + {u * vec} < CHANNELS) " if u else "")}\
% endfor
% for u in range(0 if by_pixels else vecs):
        if (channel + ${u * vec} < CHANNELS) {
% for n, x in product(range(images if in_pixels else 0), range(v.results)):
${stored(n, x, u, "")}\
% endfor
% for n in range(0 if in_pixels else images):
% for start in range(0, v.results, vec):
            ${is_own(n)}{
                ${vf} rows[${vec}] = {${sums(n, u, start, vec, v.results)}};
                store${min(vec, v.results - start)}(
                    rows,
                    out + ${n} * WRITTEN_IMAGE + ${u * vec} * WRITTEN_PLANE + ${start * store_step},
% if bias:
                    bias + ${u * vec},
% endif
% if residual:
                    RESIDUAL(out + ${n} * WRITTEN_IMAGE + ${u * vec} * WRITTEN_PLANE + ${start * store_step}),
% endif
                    CHANNELS - channel - ${u * vec});
            }
% endfor
% endfor
        }
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${kernel}(
    __global const ${"float" if widened else "elem_t"} *restrict ${"read" if pairs else "in"}, const long offset_in,
    __global const ${word} *restrict weights, const long offset_weights,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out)
{
    const int block = get_global_id(${block_dim});
    const int position = get_global_id(${position_dim});
    const int group = block / BLOCKS;
    const int channel = block % BLOCKS * BLOCK;
    const int column = position % COLUMNS;
    const int row = position / COLUMNS % RESULTS_H;
% if last_image is not None:
    const int first_image = position / (COLUMNS * RESULTS_H) * ${images};
    const long image = min(first_image, ${last_image});
    const int others = first_image - (int)image;  // which another work-item stores
% else:
    const long image = position / (COLUMNS * RESULTS_H) * ${images};
% endif
    const int h0 = row * STEP_H + ORIGIN_H;
    const int w0 = column * ${item_x} * STEP_W + ORIGIN_W;

% if pairs:
    __global const uint *in = (__global const uint *)(read + offset_in);
% endif
    in += ${"" if pairs else "offset_in + "}image * READ_IMAGE + group * DEPTH${"" if read_pixels else " * READ_PLANE"};
    weights += offset_weights + (long)block % BLOCKS * PACKED_BLOCK * BLOCK
        + (long)group * PACKED_GROUP * BLOCK + (KERNEL_FIRST_H * KERNEL_W + KERNEL_FIRST_W)${" * DEPTH" if packed_by_pixel else ""} * BLOCK;
<% place = f"(FIRST_H + row * STORE_STEP_H) * WRITTEN_W + FIRST_W + column * {item_x * store_step}" %>\
% if in_pixels:
    out += offset_out + image * WRITTEN_IMAGE + group * CHANNELS + channel
        + (${place}) * WRITTEN_PIXEL;
% else:
    out += offset_out + image * WRITTEN_IMAGE + (group * CHANNELS + channel) * WRITTEN_PLANE
        + ${place};
% endif
% if bias:
    bias += offset_bias + group * CHANNELS + channel;
% endif
% if residual:
% if in_pixels:
    residual += offset_residual + image * WRITTEN_IMAGE + group * CHANNELS + channel
        + (${place}) * WRITTEN_PIXEL;
% else:
    residual += offset_residual + image * WRITTEN_IMAGE + (group * CHANNELS + channel) * WRITTEN_PLANE
        + ${place};
% endif
% endif
% for v in pieces:
    ${branch(loop.first, v.blocks)}{
${block(v)}\
    }
% endfor
}
