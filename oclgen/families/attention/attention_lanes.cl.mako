<%doc>
Attention in fp32: out = softmax(scale q k^T + mask) v, in one pass over the keys.

A row of q is shared by `lanes` neighbouring work-items of a warp, which hold every lanes-th vector
of four of it and of its result, so that rows, sums and scores stay in registers. All others read
the same key at the same time, which local memory serves at once. Tiles of k and v are copied by
`cp.async` while the last ones are used. Maxima and sums run along in powers of two (online
softmax: Milakov and Gimelshein 2018; Dao et al. 2022).

units       text of attention_units.cl.mako
preamble    typedef of elem_t and the macros LOADn and STOREn
work_items, lanes   of a work-group; of a row
rows        rows of a work-item
chunk       keys that are scored before their values are added
tile_m, tile_n      rows of q and of k per tile
depth, depth_v      items of a row of q and k, and of v, rounded up to whole vectors of all lanes
dim, dim_v  the same, not rounded
seen        which keys a query sees: see `Seen`
masked      there is an additive mask
local_bytes bytes of all tiles
</%doc>
<%namespace name="share" file="attention_lanes_parts.cl.mako"/>\
<%
    vectors, vectors_v = depth // 4 // lanes, depth_v // 4 // lanes
    k_bytes = tile_n * depth * 4
    stage_bytes = k_bytes + tile_n * depth_v * 4
    log2e = "1.44269504f"
    conditions = [f"key < {seen.last_key('row')}"] + [f"key >= {seen.first_key('row')}"] * (seen.window > 0)
%>\
${preamble}
${units}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_lanes(
${share.parameters(("q", "k", "v", "out"), "fwd", masked)})
{
    const int id = (int)get_local_id(0), lane = id % ${lanes};
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    UNIT_MEMORY
    // rows that see most keys come first, so that none of them is left for the end
    const int row0 = (int)(get_num_groups(0) - 1 - get_group_id(0)) * ${tile_m}, own = row0 + id / ${lanes} * ${rows};
    const int batch = get_group_id(1) / heads, head = get_group_id(1) % heads;
    q += q_start + batch * q_batch + head * q_head;
    k += k_start + batch * k_batch + head / shared_by * k_head;
    v += v_start + batch * v_batch + head / shared_by * v_head;
    out += out_start + batch * out_batch + head * out_head;
    lse += lse_start + get_group_id(1) * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif

    const int last = ${seen.last_key(f"(row0 + {tile_m - 1})")};
    int key0 = ${seen.first_key("row0", tile_n)};
${share.copy("base", "k", "k_row", "key0", "keys", tile_n, depth, dim, work_items)}\
${share.copy(f"base + {k_bytes}", "v", "v_row", "key0", "keys", tile_n, depth_v, dim_v, work_items)}\
    COPY_COMMIT();
${share.own("own_q", "q", "q_row", "queries", rows, vectors, lanes, dim)}\
${share.zeros("outs", rows, vectors_v)}\
    float top[${rows}], sum[${rows}];
#pragma unroll
    for (int r = 0; r < ${rows}; ++r) {
        top[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    int stage = 0;
    for (; key0 < last; key0 += ${tile_n}) {
        const int next = key0 + ${tile_n};
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (next < last) {
${share.copy(f"base + {stage_bytes} - stage", "k", "k_row", "next", "keys", tile_n, depth, dim, work_items)}\
${share.copy(f"base + {stage_bytes + k_bytes} - stage", "v", "v_row", "next", "keys", tile_n, depth_v, dim_v, work_items)}\
        }
        COPY_COMMIT();
        __local const float4 *k_tile = (__local const float4 *)(tiles + stage) + lane;
        __local const float4 *v_tile = (__local const float4 *)(tiles + stage + ${k_bytes}) + lane;
        const bool edge = next > ${seen.last_key("row0")}${f" || key0 < {seen.first_key(f'(row0 + {tile_m - 1})')}" if seen.window else ""};
        for (int j = 0; j < ${tile_n}; j += ${chunk}) {
            float scores[${rows}][${chunk}];
${share.products("scores", "own_q", f"k_tile + j * {depth // 4}", rows, vectors, lanes, chunk, depth)}\
#pragma unroll
            for (int r = 0; r < ${rows}; ++r) {
                const int row = own + r;
#pragma unroll
                for (int c = 0; c < ${chunk}; ++c) {
                    scores[r][c] *= scale * ${log2e};
% if masked:
                    scores[r][c] += ${log2e} * LOAD1(mask + min(row, queries - 1) * mask_row + min(key0 + j + c, keys - 1) * mask_column);
% endif
                }
                if (edge) {
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        const int key = key0 + j + c;
                        scores[r][c] = ${" && ".join(conditions)} ? scores[r][c] : -INFINITY;
                    }
                }
                float most = scores[r][0];
#pragma unroll
                for (int c = 1; c < ${chunk}; ++c) {
                    most = fmax(most, scores[r][c]);
                }
                if (most > top[r]) {
                    const float shrink = native_exp2(top[r] - most);
                    top[r] = most;
                    sum[r] *= shrink;
#pragma unroll
                    for (int i = 0; i < ${vectors_v}; ++i) {
                        outs[r][i] *= shrink;
                    }
                }
                // where all is hidden, shift by nothing: the power of -inf is 0 and stays 0
                const float shift = top[r] == -INFINITY ? 0.0f : top[r];
#pragma unroll
                for (int c = 0; c < ${chunk}; ++c) {
                    scores[r][c] = native_exp2(scores[r][c] - shift);
                    sum[r] += scores[r][c];
                }
            }
${share.accumulate("outs", "scores", f"v_tile + j * {depth_v // 4}", rows, vectors_v, lanes, chunk, depth_v)}\
        }
        stage = ${stage_bytes} - stage;
    }

#pragma unroll
    for (int r = 0; r < ${rows}; ++r) {
        if (own + r < queries && lane == 0) {
            // +inf where all is hidden: gradients then find probabilities of 0
            lse[own + r] = sum[r] == 0.0f ? INFINITY : (top[r] + log2(sum[r])) * 0.69314718f;
        }
        sum[r] = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
    }
${share.store("out", "out_row", "queries", "outs", rows, vectors_v, lanes, dim_v, " * sum[r]")}\
}
