<%doc>
Adds vectors of four floats to memory by one instruction, on top of what a work-item wrote.

It is of sm_90 and of PTX 8.1, so that drivers refuse it that are older than the GPU.
</%doc>\
__kernel void probe_add_vectors(
    const __global ushort *ones, const long ones_offset,
    __global float *out, const long out_offset)
{
    const float one = as_float((uint)ones[ones_offset] << 16);
    __global float *mine = out + out_offset + get_global_id(0) * 4;
    for (int i = 0; i < 4; ++i)
        mine[i] = i;
    __asm__ volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                     :: "l"(mine), "f"(one), "f"(one), "f"(one), "f"(one) : "memory");
    mem_fence(CLK_GLOBAL_MEM_FENCE);
}
