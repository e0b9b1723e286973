<%doc>
Asks whether a device has a sub-group of `oclgen.opencl.sub_groups`: whether neighbouring work-items
are its lanes, hand each other what they hold, and read rows. Two sub-groups share a work-group; a
work-item writes to `out` how many values were right.

name        of the sub-group
lanes       its work-items
widths      words that a lane reads of a row at once
sub_group   the functions
</%doc>
<% words = lambda width: [""] if width == 1 else [f".s{j}" for j in range(width)] %>\
${sub_group}

__kernel SUB_GROUP __attribute__((reqd_work_group_size(${2 * lanes}, 1, 1)))
void probe_${name}(
    __global const ushort *ones, const long offset, __global float *out, const long offset_out,
    __global float *operands, const long offset_operands)
{
    const int lane = LANE;
    const int id = (int)get_local_id(0), first = id / ${lanes} * ${lanes};
    const float mine = (float)(id * id);
    for (int i = id; i < ${max(widths) * lanes + lanes}; i += ${2 * lanes}) {
        operands[i] = (float)i;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    int right = (lane == id - first) + (OF_FIRST_LANE(first / ${lanes} + 5) == first / ${lanes} + 5);
    for (int i = 0; i < ${lanes}; ++i) {
        right += FROM_LANE(mine, i) == (float)((first + i) * (first + i));
    }
    __global const float *row = operands + first;
% for width in widths:
    {
        const float${width if width > 1 else ""} words = READ_ROW${width}(row);
% for j, word in enumerate(words(width)):
        right += words${word} == (float)(first + ${j * lanes} + lane);
% endfor
    }
% endfor
    out[offset_out + id] = (float)right;
}
