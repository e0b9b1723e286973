<%doc>
Packs the weights of correlations for conv_gemm: [groups][K_PADDED][M_PADDED] of each phase, fp32,
zero where there is no weight, so that the product reads whole vectors without a guard.

A work-item takes one tap of some channels of a row.

dtype               storage type of w
sizes               text of the correlations' sizes; those that differ are tables by `phase`
taps_outer          k counts channels within taps, DEPTH rounded up; else taps within channels
taps                taps of the phase that has most
channels            channels per work-item
local_size          work-items per group
</%doc>
${preamble}
${sizes}
#define TAPS (TAPS_H * TAPS_W)

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void conv_gemm_pack(
    __global const elem_t *restrict w, const long offset_w,
    __global float *restrict packed, const long offset_packed)
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
    w += offset_w + (long)group * WEIGHT_GROUP + (long)m * WEIGHT_OUT + r * KERNEL_W + s;
    packed += offset_packed + PACKED_FIRST + (long)group * K_PADDED * M_PADDED + m;
    const int first = (int)get_global_id(1) * ${channels};
    for (int channel = first; channel < first + ${channels}; ++channel) {
        const int k = ${"tap * DEPTH_PADDED + channel" if taps_outer else "channel * TAPS + tap"};
        if (${"channel < DEPTH_PADDED && " if taps_outer else ""}k < K_PADDED) {
            packed[(long)k * M_PADDED] =
                m < M && channel < DEPTH ? LOAD1(w + (long)channel * WEIGHT_IN) : 0.0f;
        }
    }
}
