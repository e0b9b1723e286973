<%doc>
Asks whether a device has `wgmma` and takes it as `oclgen.opencl.ptx` hands it over: four warps multiply
64 x 16 by 16 x 8 ones in local memory.
</%doc>
__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void probe_wgmma(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    __local ushort tiles[1024 + 128] __attribute__((aligned(128)));
    const uint id = (uint)get_local_id(0);
    uint address;
    float c0 = 0.0f, c1 = 0.0f, c2 = 0.0f, c3 = 0.0f;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(tiles));
    for (int i = id; i < 1024 + 128; i += 128) {
        tiles[i] = ones[offset + i % 128];
    }
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    // no swizzle, 128 bytes between blocks of 8 x 8 along k, 256 across
    const ulong strides = (ulong)(128 >> 4) << 16 | (ulong)(256 >> 4) << 32;
    __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory");
    __asm__ volatile("//sm_90a { .reg .pred p; setp.ne.b32 p, 1, 0; "
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                     : "l"(strides | address >> 4), "l"(strides | (address + 2048) >> 4) : "memory");
    __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory");
    __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned 0;" ::: "memory");
    out[offset_out + id] = c0 + c1 + c2 + c3;
}
