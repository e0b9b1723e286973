<%doc>
Sums the planes that a split reduction left in its workspace and applies the epilogue.

One work-item writes vec elements; planes are fp32 and lie one after the other. Of many planes
slices work-items add up some each, and their sums meet in local memory.

dtype, activation   storage type of the output and bias; epilogue (bias only with `bias`)
elements            elements of the output, and of each plane
planes              number of planes
bias, residual      add bias[(element / per_channel) % channels], and what lies as the output does
per_channel         neighbouring elements that share a channel
channels            number of channels
vec                 elements per work-item, of one channel each or, where channels are neighbours,
                    of as many
local_size          work-items per group, along elements
slices              work-items that share the planes of an element
</%doc>
<%
    wide = "" if vec == 1 else vec
    width = f"LOAD{vec}" if per_channel == 1 else "LOAD1"
%>\
${preamble}
${activation}

__kernel __attribute__((reqd_work_group_size(${local_size}, ${slices}, 1)))
void sum_planes(
    __global const float *restrict planes, const long offset_planes,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out)
{
    const long element = (long)get_global_id(0) * ${vec};
% if slices > 1:
    // work-items beyond the last element meet the others at the barrier
    planes += offset_planes + min(element, ${elements - vec}L);
% else:
    if (element >= ${elements}) {
        return;
    }
    planes += offset_planes + element;
% endif
    float${wide} sum = 0.0f;
% if slices > 1:
#pragma unroll 4
    for (int plane = get_local_id(1); plane < ${planes}; plane += ${slices}) {
% else:
    for (int plane = 0; plane < ${planes}; ++plane) {
% endif
% if vec == 1:
        sum += planes[plane * ${elements}L];
% else:
        sum += *(__global const float${vec} *)(planes + plane * ${elements}L);
% endif
    }
% if slices > 1:
    __local float${wide} sums[${slices}][${local_size}];
    sums[get_local_id(1)][get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(1) > 0 || element >= ${elements}) {
        return;
    }
    for (int slice = 1; slice < ${slices}; ++slice) {
        sum += sums[slice][get_local_id(0)];
    }
% endif
% if bias:
    sum += ${width}(bias + offset_bias + element / ${per_channel} % ${channels});
% endif
% if residual:
    sum += LOAD${vec}(residual + offset_residual + element);
% endif
    STORE${vec}(ACT(sum), out + offset_out + element);
}
