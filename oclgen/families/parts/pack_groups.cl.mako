<%doc>
Packs weights of 16 bits for products of several groups at once: words are pairs of depths, [products,
blocks of rows, taps, words, block], where a row and a depth of different groups meet in a zero.

For CPUs: a work-item writes the words of a block. Groups that share a product have few channels, so that
there are few words.

forward             rows are filters, else channels of the input
channels, depth     rows and depths of a group
together            groups of a product
words               of a row's tap
taps, kernel_w      taps, and those that lie side by side
block               rows that lie together
mirrored            taps that lie side by side are packed from the last to the first
</%doc>
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_groups(
    __global const ushort *restrict from, const long offset_from,
    const long row_step, const long depth_step, const long down_step, const long across_step,
    __global uint *restrict packed, const long offset_packed)
{
    const int word = (int)get_global_id(0) % ${words}, tap = (int)get_global_id(0) / ${words};
    const int block = get_global_id(1);
    const int first_group = (int)get_global_id(2) * ${together};
    from += offset_from + tap / ${kernel_w} * down_step + ${f"({kernel_w - 1} - tap % {kernel_w})" if mirrored else f"tap % {kernel_w}"} * across_step;
    packed += offset_packed + ((get_global_id(2) * get_global_size(1) + block) * ${taps} + tap) * ${words * block} + word * ${block};

    for (int j = 0; j < ${block}; ++j) {
        const int group = (block * ${block} + j) / ${channels}, row = (block * ${block} + j) % ${channels};
        uint pair = 0;
        for (int half_word = 0; half_word < 2 && group < ${together}; ++half_word) {
            const int depth = 2 * word + half_word - group * ${depth};
            if (depth >= 0 && depth < ${depth}) {
                const long at = ${f"((first_group + group) * {channels} + row) * row_step + depth * depth_step" if forward else f"row * row_step + ((first_group + group) * {depth} + depth) * depth_step"};
                pair |= (uint)from[at] << 16 * half_word;
            }
        }
        packed[j] = pair;
    }
}
