<%doc>
Turns an operand of `gemm_async` that lies along k into the tiles that it puts into local memory,
one behind the other: [batch][tiles][k][tile], zero past the edge, so that they come 16 bytes at a
time and one behind the other.

For GPUs, whose neighbouring work-items have to read and to write neighbours: a work-group of 256
turns 32 rows by 32 steps of k through local memory. Words stay as they are: no swizzle, no
rounding.

name        the kernel's and the workspace's name
tile        rows of a tile
tile_k      its steps of k; the last tile is filled up with zeros
</%doc>
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void ${name}(
    __global const float *restrict from, const long offset_from, const int ld, const long batch,
    __global float *restrict to, const long offset_to, const int ld_to, const long batch_to,
    const int extent, const int k)
{
    __local float turned[32][33];
    const int lane = (int)get_local_id(0) % 32, line = (int)get_local_id(0) / 32;
    const int x0 = (int)get_group_id(1) * 32, k0 = (int)get_group_id(0) * 32;
    from += offset_from + (long)get_global_id(2) * batch;
    to += offset_to + (long)get_global_id(2) * batch_to;
    for (int i = line; i < 32; i += 8) {
        const bool inside = x0 + i < extent && k0 + lane < k;
        turned[i][lane] = inside ? from[(x0 + i) * (long)ld + k0 + lane] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global float *tile = to + (x0 + lane) / ${tile} * (long)ld_to + (x0 + lane) % ${tile};
    for (int i = line; i < 32; i += 8) {
        if (k0 + i < (k + ${tile_k - 1}) / ${tile_k} * ${tile_k}) {
            tile[(k0 + i) * (long)${tile}] = turned[lane][i];
        }
    }
}
