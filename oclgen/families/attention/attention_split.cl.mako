<%doc>
Attention of few queries: work-groups share out the keys, and each reads its keys and values once.

A work-group has a slice of the keys and some rows: queries of the heads that share a head of k and
v. Neighbouring work-items read 16 bytes each of a key, multiply them by their part of the rows, and
leave sums of products in local memory; the softmax of the slice follows, then the values are read
in the same way. What the slices of a row found is joined by `attention_split_join`, or by the
work-group that counts itself last in `counters`. No work-group waits for another.

preamble    typedef of elem_t and the macros LOADn and STOREn
dtype       fp32, fp16 or bf16
work_items  of a work-group
slice       keys of a work-group
rows        rows of a work-group
lanes, lanes_v      work-items that read a key, or a value, together
chunk       items of 16 bytes
seen        which keys a query sees: see `Seen`
masked      there is an additive mask
alone       there is one slice, whose result is the result
counted     the work-group that counts last joins the slices of its rows
</%doc>
<%namespace name="passing" file="passing.cl.mako"/>\
<%
    keys_at_once, values_at_once = work_items // lanes, work_items // lanes_v
    log2e = "1.44269504f"
    dim_v = lanes_v * chunk
    pitch = lanes + 1
    within = f"item % {chunk}"
    if chunk == 8:
        within = f"({within} / 2 + {within} % 2 * 4)"
    place = f"{within} * {lanes_v} + item / {chunk}"
    conditions = [f"key < {seen.last_key('query')}"] + [f"key >= {seen.first_key('query')}"] * (seen.window > 0)
%>\
${preamble}

% if counted:
${passing.instructions()}
% endif
/* a chunk of 16 bytes as floats: of 16-bit items the even ones, then the odd ones */
void widen(float *values, const uint4 bits)
{
% if chunk == 4:
    vstore4(as_float4(bits), 0, values);
% elif dtype == "bf16":
    vstore4(as_float4(bits << 16), 0, values);
    vstore4(as_float4(bits & 0xffff0000u), 0, values + 4);
% else:
    // halves are read from private memory: there is no type for one in a register
    union {
        uint4 all;
        ushort one[8];
    } items;
    items.all = bits;
    for (int i = 0; i < 4; ++i) {
        values[i] = vload_half(2 * i, (const half *)items.one);
        values[i + 4] = vload_half(2 * i + 1, (const half *)items.one);
    }
% endif
}

% for name, first, combine in (("largest", "-INFINITY", "fmax(found, {})"), ("total", "0.0f", "found + {}")):
float ${name}_of(__local const float *values)
{
    float found = ${first};
    for (int i = 0; i < ${slice // 4}; ++i) {
        const float4 four = ((__local const float4 *)values)[i];
        found = ${combine.format(combine.replace("found", "four.x").format("four.y"))};
        found = ${combine.format(combine.replace("found", "four.z").format("four.w"))};
    }
    return found;
}

% endfor
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_split(
% for name in ("q", "k", "v", "out"):
    __global ${"" if name == "out" else "const "}elem_t *restrict ${name}, const long ${name}_start,
    const long ${name}_batch, const long ${name}_head, const long ${name}_row,
% endfor
    __global float *restrict lse, const long lse_start,
% if masked:
    __global const elem_t *restrict mask, const long mask_start, const long mask_batch,
    const long mask_head, const long mask_row, const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys, const float scale${"" if alone else ","}
% if not alone:
    __global float *restrict parts, const long parts_start, __global float *restrict ends, const long ends_start${"," if counted else ""}
% endif
% if counted:
    volatile __global int *restrict counters, const long counters_start
% endif
    )
{
    __local float sums[${max(rows * slice * pitch, rows * work_items * chunk)}];
    __local float scores[${rows * slice}] __attribute__((aligned(16)));
    __local float powers[${rows * slice}] __attribute__((aligned(16)));
    const int id = (int)get_local_id(0);
    const int shared = heads / shared_by;
    const int batch = get_group_id(2) / shared, shared_head = get_group_id(2) % shared;
    const int row0 = (int)get_group_id(1) * ${rows}, all_rows = queries * shared_by;
    const int key0 = (int)get_group_id(0) * ${slice};
    q += q_start + batch * q_batch + shared_head * shared_by * q_head;
    k += k_start + batch * k_batch + shared_head * k_head;
    v += v_start + batch * v_batch + shared_head * v_head;
    {
        const int lane = id % ${lanes}, group = id / ${lanes};
        float own[${rows}][${chunk}];
#pragma unroll
        for (int r = 0; r < ${rows}; ++r) {
            const int row = min(row0 + r, all_rows - 1);
            widen(own[r], *(__global const uint4 *)(q + row / queries * q_head + row % queries * q_row + lane * ${chunk}));
        }
#pragma unroll ${max(1, min(8, slice // keys_at_once))}
        for (int i = 0; i < ${-(-slice // keys_at_once)}; ++i) {
            const int j = group + i * ${keys_at_once};
            float part[${chunk}];
            widen(part, *(__global const uint4 *)(k + min(key0 + j, keys - 1) * k_row + lane * ${chunk}));
            if (j < ${slice}${f" && group < {keys_at_once}" if work_items % lanes else ""}) {
#pragma unroll
                for (int r = 0; r < ${rows}; ++r) {
                    float sum = 0.0f;
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        sum += own[r][c] * part[c];
                    }
                    sums[(r * ${slice} + j) * ${pitch} + lane] = sum;
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = id; at < ${rows * slice}; at += ${work_items}) {
        const int row = min(row0 + at / ${slice}, all_rows - 1), key = key0 + at % ${slice};
        const int query = row % queries;
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < ${lanes}; ++i) {
            score += sums[at * ${pitch} + i];
        }
        score *= scale * ${log2e};
% if masked:
        score += ${log2e} * LOAD1(mask + mask_start + batch * mask_batch + (shared_head * shared_by + row / queries) * mask_head
                                + query * mask_row + min(key, keys - 1) * mask_column);
% endif
        scores[at] = ${" && ".join(conditions)} ? score : -INFINITY;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = id; at < ${rows * slice}; at += ${work_items}) {
        const float most = largest_of(scores + at / ${slice} * ${slice});
        powers[at] = exp2(scores[at] - (most == -INFINITY ? 0.0f : most));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    {
        const int lane = id % ${lanes_v}, group = id / ${lanes_v};
        float own[${rows}][${chunk}];
#pragma unroll
        for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
            for (int c = 0; c < ${chunk}; ++c) {
                own[r][c] = 0.0f;
            }
        }
#pragma unroll ${max(1, min(8, slice // values_at_once))}
        for (int i = 0; i < ${-(-slice // values_at_once)}; ++i) {
            const int j = group + i * ${values_at_once};
            float part[${chunk}];
            widen(part, *(__global const uint4 *)(v + min(key0 + j, keys - 1) * v_row + lane * ${chunk}));
            if (j < ${slice}${f" && group < {values_at_once}" if work_items % lanes_v else ""}) {
#pragma unroll
                for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        own[r][c] += powers[r * ${slice} + j] * part[c];
                    }
                }
            }
        }
        if (group < ${values_at_once}) {
#pragma unroll
            for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
                for (int c = 0; c < ${chunk}; ++c) {
                    sums[(r * ${values_at_once} + group) * ${dim_v} + c * ${lanes_v} + lane] = own[r][c];
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = id; at < ${rows * dim_v}; at += ${work_items}) {
        const int r = at / ${dim_v}, item = at % ${dim_v}, row = row0 + r;
        float value = 0.0f;
        for (int i = 0; i < ${values_at_once}; ++i) {
            value += sums[(r * ${values_at_once} + i) * ${dim_v} + ${place}];
        }
        if (row < all_rows) {
            const float all = total_of(powers + r * ${slice});
            const long line = (batch * heads + shared_head * shared_by + row / queries) * (long)queries + row % queries;
            value = all == 0.0f ? 0.0f : value / all;
            // the sum's logarithm, to base 2
            const float end = all == 0.0f ? -INFINITY : largest_of(scores + r * ${slice}) + log2(all);
% if alone:
            STORE1(value, out + out_start + batch * out_batch + (shared_head * shared_by + row / queries) * out_head
                          + row % queries * out_row + item);
            if (item == 0) {
                lse[lse_start + line] = all == 0.0f ? INFINITY : end * 0.69314718f;
            }
% else:
            const long place = line * get_num_groups(0) + get_group_id(0);
            parts[parts_start + place * ${dim_v} + item] = value;
            if (item == 0) {
                ends[ends_start + place] = end;
            }
% endif
        }
    }
% if counted:
    __local int before;
    volatile __global int *counter = counters + counters_start + get_group_id(2) * get_num_groups(1) + get_group_id(1);
    const int slices = (int)get_num_groups(0);
${passing.counted_in("before", "counter", " " * 4)}\
    if (before < slices - 1) {
        return;
    }
    if (id == 0) {
        atomic_xchg(counter, 0);
    }
    for (int at = id; at < ${rows * dim_v // 4}; at += ${work_items}) {
        const int row = row0 + at / ${dim_v // 4}, item = at % ${dim_v // 4} * 4;
        if (row < all_rows) {
            const int head = shared_head * shared_by + row / queries;
            const long line = (batch * heads + head) * (long)queries + row % queries;
            __global const float *own_ends = ends + ends_start + line * slices;
            __global const float *own_parts = parts + parts_start + line * slices * ${dim_v} + item;
            float most = -INFINITY;
#pragma unroll 8
            for (int i = 0; i < slices; ++i) {
                most = fmax(most, own_ends[i]);
            }
            const float shift = most == -INFINITY ? 0.0f : most;
            float all = 0.0f, sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;
#pragma unroll 8
            for (int i = 0; i < slices; ++i) {
                float x, y, z, w;
                TAKE_FOUR(x, y, z, w, own_parts + i * ${dim_v});
                const float power = exp2(own_ends[i] - shift);
                all += power;
% for i, name in enumerate("xyzw"):
                sum${i} += power * ${name};
% endfor
            }
            __global elem_t *to = out + out_start + batch * out_batch + head * out_head + row % queries * out_row + item;
% for i in range(4):
            STORE1(all == 0.0f ? 0.0f : sum${i} / all, to + ${i});
% endfor
            if (item == 0) {
                lse[lse_start + line] = all == 0.0f ? INFINITY : (most + log2(all)) * 0.69314718f;
            }
        }
    }
% endif
}
