<%doc>
Nothing but matrix instructions: what the units behind `mma.sync` or `wgmma` can do at most.

Operands never change, so nothing waits for memory; sums do. The operands are not zero and differ
among themselves, since units that switch less draw less power and clock higher.

unit    "mma": 32 work-items with fragments in registers; "wgmma": 128, with both tiles in local
        memory, without swizzle, 128 bytes between blocks of 8 rows along k and 256 across
dtype   "fp16", "bf16" or "tf32"; sums are fp32
n       columns of a wgmma instruction; an mma has 8
chains  instructions per step: of mma.sync on sums of their own, of wgmma in one group
</%doc>
<%
    type_name = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}[dtype]
    k_name = "k8" if dtype == "tf32" else "k16"
    wgmma = unit == "wgmma"
    work_items = 128 if wgmma else 32
    sums = n // 2 if wgmma else 4 * chains
    outputs = ", ".join(f"%{i}" for i in range(sums))
    scales = "1, 1" if dtype == "tf32" else "1, 1, 0, 0"
    a_bytes, b_bytes = 64 * 32, n * 32
    # the bits of 1.0, once in tf32 or twice in 16 bits, and those of the mantissa
    one, mantissa = {
        "fp16": ("0x3c003c00u", "0x03ff03ffu"),
        "bf16": ("0x3f803f80u", "0x007f007fu"),
        "tf32": ("0x3f800000u", "0x007fe000u"),
    }[dtype]
%>\
/* numbers in [1, 2) */
uint operand(const uint i)
{
    return ${one} | (i * 2654435761u & ${mantissa});
}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void peak_matrix(__global float *restrict out, const long offset_out, const int steps)
{
    float c[${sums}] = {0.0f};
    const uint id = (uint)get_local_id(0);
% if wgmma:
    __local uint tiles[${(a_bytes + b_bytes) // 4}] __attribute__((aligned(128)));
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(tiles));
    for (uint i = id; i < ${(a_bytes + b_bytes) // 4}; i += ${work_items}) {
        tiles[i] = operand(i);
    }
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong strides = (ulong)(128 >> 4) << 16 | (ulong)(256 >> 4) << 32;
    const ulong a = strides | address >> 4, b = strides | (address + ${a_bytes}) >> 4;
% else:
    const uint a0 = operand(id), a1 = operand(id + 32), a2 = operand(id + 64), a3 = operand(id + 96);
    const uint b0 = operand(id + 128), b1 = operand(id + 160);
% endif
    for (int step = 0; step < steps; ++step) {
% if wgmma:
        __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory");
% for _ in range(chains):
        __asm__ volatile("//sm_90a { .reg .pred p; setp.ne.b32 p, 1, 0; "
                         "wgmma.mma_async.sync.aligned.m64n${n}${k_name}.f32.${type_name}.${type_name} "
                         "{${outputs}}, %${sums}, %${sums + 1}, p, ${scales}; }"
                         : ${", ".join(f'"+f"(c[{i}])' for i in range(sums))}
                         : "l"(a), "l"(b) : "memory");
% endfor
        __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory");
        __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned 0;" ::: "memory");
% else:
% for i in range(0, sums, 4):
        __asm__ volatile("mma.sync.aligned.m16n8${k_name}.row.col.f32.${type_name}.${type_name}.f32 "
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                         : "+f"(c[${i}]), "+f"(c[${i + 1}]), "+f"(c[${i + 2}]), "+f"(c[${i + 3}])
                         : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
% endfor
% endif
    }
    // every index is a constant, so that c stays in registers
    float sum = 0.0f;
% for i in range(sums):
    sum += c[${i}];
% endfor
    out[offset_out + get_global_id(0)] = sum;
}
