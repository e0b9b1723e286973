<%doc>
Sums the slices of M [slices][elements], fp32, into the first of them.

slices        products over part of the tiles
elements      floats of a slice
local_c       work-items per group
</%doc>
__kernel __attribute__((reqd_work_group_size(${local_c}, 1, 1)))
void winograd_sum(__global float *restrict m, const long offset_m)
{
    const int element = get_global_id(0);
    if (element >= ${elements}) {
        return;
    }
    m += offset_m + element;
    float sum = m[0];
#pragma unroll 4
    for (int slice = 1; slice < ${slices}; ++slice) {
        sum += m[slice * ${elements}L];
    }
    m[0] = sum;
}
