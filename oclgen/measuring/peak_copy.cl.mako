<%doc>
Copies a buffer, one vector per work-item: what a device's memory gives and takes.

vec      width of loads and stores
</%doc>
__kernel void peak_copy(
    __global const float${vec} *restrict in, const long offset_in,
    __global float${vec} *restrict out, const long offset_out)
{
    out[offset_out + get_global_id(0)] = in[offset_in + get_global_id(0)];
}
