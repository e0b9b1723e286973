<%doc>
Gradient of the weights of single taps in planes, in registers for CPUs: vector lanes are pixels.

Images and gradients are read as they lie: each pair of an output and an input channel has a vector of
sums, whose lanes are added at the end. A work-item has loop_k blocks of item_k output channels and
loop_c blocks of item_c input channels. It goes through the pixels of an image tile by tile, and through
all pairs of blocks for each tile, which the caches hold meanwhile. The sums of a pair of blocks are in
registers during a tile, else in private memory. The last blocks of channels begin earlier where they
would not be whole.

sizes               names and values of the problem's sizes
given               names of those that are arguments, since the batch is free
vec                 lanes of a vector
item_k, item_c      channels of a block
loop_k, loop_c      blocks of a work-item
tile                pixels of a tile, a multiple of vec
split               slices of images, each of which writes a plane of sums (summed by sum_planes)
</%doc>
<%!
    from oclgen.render import vector
%>\
<%
    vf = vector(vec)
    out_type = "float" if split > 1 else "elem_t"
    pairs = [(i, j) for i in range(item_k) for j in range(item_c)]
    place = f"sums + (k * {loop_c} + c) * {len(pairs) * vec}"
%>\
${preamble}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor

float sum_of(const float *lanes)
{
    float sum = 0.0f;
    for (int i = 0; i < ${vec}; ++i) {
        sum += lanes[i];
    }
    return sum;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_lines_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${out_type} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    const int first_k = (int)get_global_id(0) * ${item_k * loop_k}, first_c = (int)get_global_id(1) * ${item_c * loop_c};
% if split > 1:
    const int plane = get_global_id(2);
    const int first_image = plane * IMAGES_PER_PLANE;
    const int end_image = min(first_image + IMAGES_PER_PLANE, IMAGES);
% else:
    const int first_image = 0;
    const int end_image = IMAGES;
% endif
    y += offset_y;
    x += offset_x;

    float sums[${loop_k * loop_c * len(pairs) * vec}] __attribute__((aligned(64)));
    for (int i = 0; i < ${loop_k * loop_c * len(pairs)}; ++i) {
        vstore${vec}((${vf})(0.0f), i, sums);
    }
    for (int image = first_image; image < end_image; ++image) {
        for (int begin = 0; begin < PIXELS; begin += ${tile}) {
            const int end = min(begin + ${tile}, PIXELS), whole = begin + (end - begin) / ${vec} * ${vec};
            for (int k = 0; k < ${loop_k} && first_k + k * ${item_k} < CHANNELS; ++k) {
                __global const elem_t *of_y = y + (image * (long)CHANNELS + min(first_k + k * ${item_k}, CHANNELS - ${item_k})) * PIXELS;
                for (int c = 0; c < ${loop_c} && first_c + c * ${item_c} < DEPTH; ++c) {
                    __global const elem_t *of_x = x + (image * (long)DEPTH + min(first_c + c * ${item_c}, DEPTH - ${item_c})) * PIXELS;
                    float *own = ${place};
% for n, (i, j) in enumerate(pairs):
                    ${vf} acc${i}_${j} = vload${vec}(${n}, own);
% endfor
                    for (int p = begin; p < whole; p += ${vec}) {
% for j in range(item_c):
                        const ${vf} x${j} = LOAD${vec}(of_x + ${j} * (long)PIXELS + p);
% endfor
% for i in range(item_k):
                        const ${vf} y${i} = LOAD${vec}(of_y + ${i} * (long)PIXELS + p);
% for j in range(item_c):
                        acc${i}_${j} = y${i} * x${j} + acc${i}_${j};
% endfor
% endfor
                    }
% for n, (i, j) in enumerate(pairs):
                    vstore${vec}(acc${i}_${j}, ${n}, own);
% endfor
                    for (int p = whole; p < end; ++p) {
                        for (int i = 0; i < ${item_k}; ++i) {
                            for (int j = 0; j < ${item_c}; ++j) {
                                own[(i * ${item_c} + j) * ${vec} + p - whole] += LOAD1(of_y + i * (long)PIXELS + p) * LOAD1(of_x + j * (long)PIXELS + p);
                            }
                        }
                    }
                }
            }
        }
    }

    out += offset_out;
% if split > 1:
    out += plane * (long)CHANNELS * DEPTH;
% endif
    for (int k = 0; k < ${loop_k} && first_k + k * ${item_k} < CHANNELS; ++k) {
        for (int c = 0; c < ${loop_c} && first_c + c * ${item_c} < DEPTH; ++c) {
            const float *own = ${place};
            for (int i = 0; i < ${item_k}; ++i) {
                const long channel = min(first_k + k * ${item_k}, CHANNELS - ${item_k}) + i;
                for (int j = 0; j < ${item_c}; ++j) {
                    const float sum = sum_of(own + (i * ${item_c} + j) * ${vec});
                    __global ${out_type} *to = out + channel * DEPTH + min(first_c + c * ${item_c}, DEPTH - ${item_c}) + j;
                    ${"*to = sum" if split > 1 else "STORE1(sum, to)"};
                }
            }
        }
    }
}
