<%doc>
Asks whether a device copies from global to local memory by `cp.async`, 16 and 4 bytes at a time.
</%doc>
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void probe_cp_async(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    __local ushort copied[2 * 32] __attribute__((aligned(16)));
    const uint lane = (uint)get_local_id(0);
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(copied));
    if (lane < 4) {
        __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(address + 16 * lane), "l"(ones + offset + 8 * lane), "r"(16) : "memory");
    } else if (lane < 20) {
        __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                         :: "r"(address + 64 + 4 * (lane - 4)), "l"(ones + offset + 2 * lane), "r"(4) : "memory");
    }
    __asm__ volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    out[offset_out + lane] = 0.5f * (as_float((uint)copied[lane] << 16) + as_float((uint)copied[lane + 32] << 16));
}
