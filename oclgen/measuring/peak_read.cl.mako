<%doc>
Reads a buffer, `count` vectors per work-item: what a device's memory gives.

vec      items of a vector of 4 bytes each
count    vectors of a work-item, a multiple of 4
group    work-items of a group; neighbours read neighbouring vectors
</%doc>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void peak_read(
    __global const uint${vec} *restrict in, const long offset_in,
    __global uint *restrict out, const long offset_out)
{
    in += offset_in + get_group_id(0) * (long)${group * count} + get_local_id(0);
    uint${vec} first = 0, second = 0, third = 0, fourth = 0;
    for (int i = 0; i < ${count}; i += 4) {
        first ^= in[i * ${group}];
        second ^= in[(i + 1) * ${group}];
        third ^= in[(i + 2) * ${group}];
        fourth ^= in[(i + 3) * ${group}];
    }
    const uint${vec} all = first ^ second ^ third ^ fourth;
    out[offset_out + get_global_id(0)] = ${" ^ ".join(f"all.s{i:x}" for i in range(vec))};
}
