<%doc>
Packs the weights of correlations for conv_gemm: [groups][K_PADDED][M_PADDED] of each phase, fp32,
zero where there is no weight, so that the product reads whole vectors without a guard.

A work-item takes one tap of some channels of a row; neighbours write neighbouring rows, which lie
together, so that nothing passes through local memory. For images in channels_last weights lie as
their strides say, and k counts channels within taps in any case.

dtype               storage type of w
sizes               text of the correlations' sizes; those that differ are tables by `phase`
given               names of those that are arguments, with their types: all but taps, of one phase
taps_outer          k counts channels within taps, DEPTH rounded up; else taps within channels
pixels, group_step  for images in channels_last; what then lies between the weights of two groups
taps                taps of the phase that has most
channels            channels per work-item
local_size          work-items per group
</%doc>
<%
    k_of, bound = "channel * TAPS + tap", ""
    if taps_outer:
        k_of, bound = "tap * DEPTH_PADDED + channel", "channel < DEPTH_PADDED && "
    elif pixels:
        # the last tap fills what is beyond it
        k_of, bound = "tap * DEPTH + channel", "(channel < DEPTH || tap == TAPS - 1) && "
%>\
${preamble}
${sizes}
#define TAPS (TAPS_H * TAPS_W)

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void conv_gemm_pack(
    __global const elem_t *restrict w, const long offset_w,
% if pixels:
    const long w_out, const long w_in, const long w_row, const long w_column,
% endif
    __global float *restrict packed, const long offset_packed${"".join(f", const {kind} {name}" for name, kind in given.items())})
{
    const int m = get_global_id(0);
    const int tap = (int)get_global_id(2) % ${taps};
    const int group = (int)get_global_id(2) / ${taps} % GROUPS;
    const int phase = (int)get_global_id(2) / (${taps} * GROUPS);
    if (m >= M_PADDED || tap >= TAPS) {
        return;
    }
    const int r = KERNEL_FIRST_H + tap / TAPS_W * KERNEL_STEP_H;
    const int s = KERNEL_FIRST_W + tap % TAPS_W * KERNEL_STEP_W;
% if pixels:
    w += offset_w + group * ${group_step} + m * w_out + r * w_row + s * w_column;
% else:
    w += offset_w + (long)group * WEIGHT_GROUP + (long)m * WEIGHT_OUT + r * KERNEL_W + s;
% endif
    packed += offset_packed + PACKED_FIRST + (long)group * K_PADDED * M_PADDED + m;
    const int first = (int)get_global_id(1) * ${channels};
    for (int channel = first; channel < first + ${channels}; ++channel) {
        const int k = ${k_of};
        if (${bound}k < K_PADDED) {
            packed[(long)k * M_PADDED] =
                m < M && channel < DEPTH ? LOAD1(w + ${"channel * w_in" if pixels else "(long)channel * WEIGHT_IN"}) : 0.0f;
        }
    }
}
