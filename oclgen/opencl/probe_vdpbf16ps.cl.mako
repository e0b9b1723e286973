<%doc>
Asks whether a processor has AVX512-BF16, and its compiler a way to it: one work-item multiplies pairs
of ones, and rounds the sums.

instruction     DOT_PAIRS, NEAREST_BF16
</%doc>
${instruction}
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void probe_vdpbf16ps(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    const uint16 pairs = vload16(0, (__global const uint *)(ones + offset));
    float16 sums = 0.0f;
    DOT_PAIRS(sums, pairs, pairs);
    vstore16(as_float16(convert_uint16(NEAREST_BF16(sums)) << 16), 0, out + offset_out);
}
