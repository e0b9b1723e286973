<%doc>
Joins what slices of the keys found: out = the mean of the slices' results, weighted by the powers
of 2 of their ends, and each row's lse. A work-group has a row.

preamble    typedef of elem_t and the macros LOADn and STOREn
dim_v       items of a row
work_items  of a work-group
</%doc>
${preamble}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_split_join(
    __global const float *restrict parts, const long parts_start, __global const float *restrict ends, const long ends_start,
    __global elem_t *restrict out, const long out_start, const long out_batch, const long out_head, const long out_row,
    __global float *restrict lse, const long lse_start,
    const int heads, const int queries, const int slices)
{
    const int line = (int)get_group_id(0), id = (int)get_local_id(0);
    const int query = line % queries, head = line / queries % heads, batch = line / queries / heads;
    parts += parts_start + line * (long)slices * ${dim_v};
    ends += ends_start + line * (long)slices;
    float most = -INFINITY;
    for (int i = 0; i < slices; ++i) {
        most = fmax(most, ends[i]);
    }
    const float shift = most == -INFINITY ? 0.0f : most;
    float all = 0.0f;
    for (int i = 0; i < slices; ++i) {
        all += exp2(ends[i] - shift);
    }
    for (int item = id; item < ${dim_v}; item += ${work_items}) {
        float value = 0.0f;
        for (int i = 0; i < slices; ++i) {
            value += exp2(ends[i] - shift) * parts[i * ${dim_v} + item];
        }
        STORE1(all == 0.0f ? 0.0f : value / all, out + out_start + batch * out_batch + head * out_head + query * out_row + item);
    }
    if (id == 0) {
        lse[lse_start + line] = all == 0.0f ? INFINITY : (most + log2(all)) * 0.69314718f;
    }
}
