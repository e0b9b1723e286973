<%doc>
The greedy walk of non-maximum suppression over boxes, best first: which of them stand.

overlaps    [count, words]: bit b of word w is set where box 64 w + b, a worse one, is overlapped
fallen      [words]: the same bits of the boxes that have fallen so far; scratch
stands      [count]: 1 where a box stands

One work-group; its work-items share out the words.
</%doc>
__kernel void suppression_sweep(
    __global const long *restrict overlaps, const long overlaps_offset,
    __global long *restrict fallen, const long fallen_offset,
    __global uchar *restrict stands, const long stands_offset,
    const long count, const long words)
{
    const long item = get_local_id(0);
    const long items = get_local_size(0);
    overlaps += overlaps_offset;
    fallen += fallen_offset;
    stands += stands_offset;
    for (long word = item; word < words; word += items)
        fallen[word] = 0;
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (long box = 0; box < count; ++box) {
        const int standing = !((fallen[box / 64] >> (box % 64)) & 1);
        if (item == 0)
            stands[box] = standing;
        if (standing) {
            barrier(CLK_GLOBAL_MEM_FENCE);
            for (long word = box / 64 + item; word < words; word += items)
                fallen[word] |= overlaps[box * words + word];
            barrier(CLK_GLOBAL_MEM_FENCE);
        }
    }
}
