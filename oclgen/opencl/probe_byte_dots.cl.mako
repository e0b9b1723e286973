<%doc>
Asks whether a processor has an instruction that multiplies bytes, and its compiler a way to it: one
work-item multiplies the lower halves of the bytes of ones, 0 and 15, by -128 and 63, then by 1.

name            of the instruction
instruction     sums_t, DOTS and INTS
lanes           of a vector
</%doc>
${instruction}
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void probe_${name}(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    const uint${lanes} x = vload${lanes}(0, (__global const uint *)(ones + offset)) & 0x0f0f0f0fu;
    sums_t sums = 0;
    sums = DOTS(sums, x, 0x3f803f80u);
    sums = DOTS(sums, x, 0x01010101u);
    vstore${lanes}(convert_float${lanes}(INTS(sums)), 0, out + offset_out);
}
