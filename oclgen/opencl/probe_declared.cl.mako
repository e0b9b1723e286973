<%doc>
Asks whether a kernel may declare so much local memory. Each work-group writes numbers of its own to
all of it; each work-item counts how many it finds right that others wrote.

words   32-bit words of local memory
items   work-items of a work-group
</%doc>
__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void probe_declared(__global float *out, const long offset_out)
{
    __local uint memory[${words}];
    const uint item = (uint)get_local_id(0), own = (uint)get_group_id(0) * ${words}u;
    for (uint i = item; i < ${words}u; i += ${items}u)
        memory[i] = own + i;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint right = 0;
    for (uint i = item; i < ${words}u; i += ${items}u)
        right += memory[${words - 1}u - i] == own + ${words - 1}u - i;
    out[offset_out + (long)get_global_id(0)] = (float)right;
}
