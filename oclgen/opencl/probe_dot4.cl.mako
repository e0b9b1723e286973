<%doc>
Asks whether a device has an instruction of `byte_dots`: four signed products and a sum.

name    of the instruction
dot     the OpenCL C of `dot4`
</%doc>
${dot}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void probe_${name}(__global const uint *ones, const long offset, __global float *out, const long offset_out)
{
    // two bf16 ones are the bytes -128, 63, -128, 63
    out[offset_out] = (float)dot4(ones[offset / 2], 0x01ff7f80u, 5);
}
