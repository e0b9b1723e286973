<%doc>
Sums the planes that a split reduction left in its workspace and applies the epilogue.

One work-item writes one element; planes are fp32 and lie one after the other.

dtype, activation   storage type of the output and bias; epilogue (bias only with `bias`)
elements            elements of the output, and of each plane
planes              number of planes
bias                add bias[(element / per_channel) % channels]
per_channel         neighbouring elements that share a channel
channels            number of channels
local_size          work-items per group
</%doc>
${preamble}
${activation}

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void sum_planes(
    __global const float *restrict planes, const long offset_planes,
% if bias:
    __global const elem_t *restrict bias, const long offset_bias,
% endif
    __global elem_t *restrict out, const long offset_out)
{
    const long element = get_global_id(0);
    if (element >= ${elements}) {
        return;
    }
    planes += offset_planes + element;
    float sum = 0.0f;
    for (int plane = 0; plane < ${planes}; ++plane) {
        sum += planes[plane * ${elements}L];
    }
% if bias:
    sum += LOAD1(bias + offset_bias + element / ${per_channel} % ${channels});
% endif
    STORE1(ACT(sum), out + offset_out + element);
}
