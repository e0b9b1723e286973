<%doc>
Asks whether a device has the tensor memory accelerator, and whether it takes a tensor map written
by a kernel: a map of 8 ones in `out` itself, a box of 16 of them, and a sum of each value (past the
edge: 0) and one more.
</%doc>
#define REPLACE(field, value) \
    __asm__ volatile("//sm_90a tensormap.replace.tile." field ", %1;" :: "l"(out), value : "memory")

__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void probe_tma(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    __local ushort box[32] __attribute__((aligned(128)));
    __local ulong full;
    const uint id = (uint)get_local_id(0);
    uint box_at, full_at, over = 0;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(box_at) : "l"(box));
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(full_at) : "l"(&full));
    out += offset_out;
    out[id] = 0.0f;
    box[id] = 0x4000;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (id == 0) {
        REPLACE("global_address.global.b1024.b64 [%0]", "l"(ones + offset));
        REPLACE("rank.global.b1024.b32 [%0]", "n"(0));
        REPLACE("box_dim.global.b1024.b32 [%0], 0", "r"(16));
        REPLACE("global_dim.global.b1024.b32 [%0], 0", "r"(8));
        REPLACE("element_stride.global.b1024.b32 [%0], 0", "r"(1));
        REPLACE("elemtype.global.b1024.b32 [%0]", "n"(1));
        REPLACE("interleave_layout.global.b1024.b32 [%0]", "n"(0));
        REPLACE("swizzle_mode.global.b1024.b32 [%0]", "n"(0));
        REPLACE("fill_mode.global.b1024.b32 [%0]", "n"(0));
        __asm__ volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
        __asm__ volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(out) : "memory");
        __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full_at) : "memory");
        __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 32;" :: "r"(full_at) : "memory");
        __asm__ volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];"
                         :: "r"(box_at), "l"(out), "r"(0), "r"(full_at) : "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    // a device that never says so must not be waited for
    for (int i = 0; i < 100000 && !over; ++i) {
        __asm__ volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(over) : "r"(full_at) : "memory");
    }
    float sum = 1.0f;
    for (int i = 0; i < 16; ++i) {
        sum += as_float((uint)box[i] << 16);
    }
    out[id] = sum;
}
