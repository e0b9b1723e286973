<%doc>
Adds planes of the gradient of weights, [channels][taps][depth] in fp32, into weights that lie as
their strides say. A work-group of 256 takes some depths of one channel through local memory, so
that neighbours store to neighbours whether depths or taps lie side by side.

dtype               storage type of w
planes              number of planes
channels, taps      rows of a plane, and taps of each
kernel_w            taps of a row of taps
depth, padded       depths that are weights, and those of a plane
span                depths per work-group
</%doc>
<% plane = channels * taps * padded %>\
${preamble}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void conv_mma_sum(
    __global const float *restrict planes, const long offset_planes,
    __global elem_t *restrict w, const long offset_w,
    const long w_channel, const long w_depth, const long w_row, const long w_column)
{
    __local float sums[${taps}][${span + 1}];
    const int first = (int)get_group_id(0) * ${span}, channel = (int)get_group_id(1);
    planes += offset_planes + (long)channel * ${taps * padded} + first;
    for (int i = (int)get_local_id(0); i < ${taps * span}; i += 256) {
        const int tap = i / ${span}, d = i % ${span};
        float sum = 0.0f;
        if (first + d < ${padded}) {
#pragma unroll 8
            for (int plane = 0; plane < ${planes}; ++plane) {
                sum += planes[plane * ${plane}L + tap * ${padded} + d];
            }
        }
        sums[tap][d] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int some = min(${depth} - first, ${span});
    w += offset_w + channel * w_channel + first * w_depth;
    for (int i = (int)get_local_id(0); i < some * ${taps}; i += 256) {
        const int tap = w_depth == 1 ? i / some : i % ${taps};
        const int d = w_depth == 1 ? i % some : i / ${taps};
        STORE1(sums[tap][d], w + d * w_depth + tap / ${kernel_w} * w_row + tap % ${kernel_w} * w_column);
    }
}
