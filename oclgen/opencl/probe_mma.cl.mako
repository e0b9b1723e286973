<%doc>
Asks whether a device has the instructions of `gemm_mma` with unit "mma": `cp.async`, `ldmatrix` and
`mma.sync` for bf16, fp16 and tf32. One warp multiplies matrices of ones.
</%doc>
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void probe_mma(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    __local uint4 tile[32];
    const uint lane = (uint)get_local_id(0);
    uint address, x, y, z, w;
    float c0 = 0.0f, c1 = 0.0f, c2 = 0.0f, c3 = 0.0f;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(tile));
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2; cp.async.commit_group; cp.async.wait_group 0;"
                     :: "r"(address + 16 * lane), "l"(ones + offset + 8 * lane), "r"(16) : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(address + 16 * lane) : "memory");
% for kind, shape, one in (("bf16", "k16", "x"), ("f16", "k16", "0x3c003c00"), ("tf32", "k8", "0x3f800000")):
<% a = ("x", "y", "z", "w") if one == "x" else (one,) * 4 %>\
    __asm__ volatile("mma.sync.aligned.m16n8${shape}.row.col.f32.${kind}.${kind}.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                     : "r"(${a[0]}), "r"(${a[1]}), "r"(${a[2]}), "r"(${a[3]}), "r"(${a[0]}), "r"(${a[1]}));
% endfor
    out[offset_out + lane] = c0 + c1 + c2 + c3;
}
