<%doc>
Adds the planes of `conv_mma_weights`, [channels][taps][depth] in fp32, into weights
[channels][depth][taps]. A work-group of 256 takes some depths of one channel through local memory.

dtype               storage type of w
planes              number of planes
channels, taps      rows of a plane, and taps of each
depth, padded       depths that are weights, and those of a plane
span                depths per work-group
</%doc>
<% plane = channels * taps * padded %>\
${preamble}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void conv_mma_sum(
    __global const float *restrict planes, const long offset_planes,
    __global elem_t *restrict w, const long offset_w)
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
    const int some = min(${depth} - first, ${span}) * ${taps};
    w += offset_w + ((long)channel * ${depth} + first) * ${taps};
    for (int i = (int)get_local_id(0); i < some; i += 256) {
        STORE1(sums[i % ${taps}][i / ${taps}], w + i);
    }
}
