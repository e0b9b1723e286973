<%doc>
A gradient of attention in fp32: that of q, by rows of q, or those of k and v, by rows of k.

With P from the rows' lse and dS = scale P (grad v^T - delta): grad_q = dS k, or grad_k = dS^T q and
grad_v = P^T grad. As in attention_lanes a row is shared by `lanes` work-items, which hold their
vectors of its two operands and of its results; the other side's rows pass through local memory. The
heads of q that share a head of k and v follow each other, so nothing is added up from outside.

units, preamble, work_items, lanes, rows, tile_m, tile_n, seen, masked      as in attention_lanes
by_keys     rows are keys, and the results grad_k and grad_v
chunk       rows of the other side whose scores are computed before they are used
depth, depth_v      items of a row of q and k, and of v and grad, rounded up
dim, dim_v  the same, not rounded
local_bytes bytes of all tiles
</%doc>
<%namespace name="share" file="attention_lanes_parts.cl.mako"/>\
<%
    vectors, vectors_v = depth // 4 // lanes, depth_v // 4 // lanes
    x_bytes = tile_n * depth * 4
    stage_bytes = x_bytes + tile_n * depth_v * 4
    log2e = "1.44269504f"
    (a, b), (x, y), results = (("k", "v"), ("q", "grad"), ("grad_k", "grad_v")) if by_keys else (("q", "grad"), ("k", "v"), ("grad_q",))
    own_count, count = ("keys", "queries") if by_keys else ("queries", "keys")
    query, key = ("column", "own + r") if by_keys else ("(own + r)", "column")
    if by_keys:
        first, last = seen.first_query, seen.last_query
        conditions = [f"column < {last('(own + r)')}"] + [f"column >= {first('(own + r)')}"] * seen.is_limited
    else:
        first, last = seen.first_key, seen.last_key
        conditions = [f"column < {last('(own + r)')}"] + [f"column >= {first('(own + r)')}"] * (seen.window > 0)
    lower = first(f"(row0 + {tile_m - 1})")
    below = f" || column0 < {lower}" if lower != "0" else ""
%>\
${preamble}
${units}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_lanes_grad(
${share.parameters(("q", "k", "v", "grad", *results), "grad", masked)})
{
    const int id = (int)get_local_id(0), lane = id % ${lanes};
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    UNIT_MEMORY
    const int row0 = (int)${"get_group_id(0)" if by_keys else "(get_num_groups(0) - 1 - get_group_id(0))"} * ${tile_m}, own = row0 + id / ${lanes} * ${rows};
% if by_keys:
    const int shared = heads / shared_by;
    const int batch = get_group_id(1) / shared, shared_head = get_group_id(1) % shared;
    const int head = shared_head * shared_by, repeats = shared_by;
% else:
    const int batch = get_group_id(1) / heads, head = get_group_id(1) % heads;
    const int shared_head = head / shared_by, repeats = 1;
% endif
    q += q_start + batch * q_batch + head * q_head;
    grad += grad_start + batch * grad_batch + head * grad_head;
    k += k_start + batch * k_batch + shared_head * k_head;
    v += v_start + batch * v_batch + shared_head * v_head;
% for name in results:
    ${name} += ${name}_start + batch * ${name}_batch + ${"shared_head" if by_keys else "head"} * ${name}_head;
% endfor
    const long line = batch * heads + head;
    lse += lse_start + line * queries;
    delta += delta_start + line * queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif

    // tiles of a head's rows, then of the next head's
    const int first = ${first("row0", tile_n)}, last = ${last(f"(row0 + {tile_m - 1})")};
    const int steps = repeats * max(0, (last - first + ${tile_n - 1}) / ${tile_n});
    int column0 = first;
    if (steps > 0) {
${copy_both("base", "column0")}\
    }
    COPY_COMMIT();
${share.own("own_a", a, f"{a}_row", own_count, rows, vectors, lanes, dim)}\
${share.own("own_b", b, f"{b}_row", own_count, rows, vectors_v, lanes, dim_v)}\
${share.zeros("sums", rows, vectors)}\
% if by_keys:
${share.zeros("sums_v", rows, vectors_v)}\
% else:
    float ends[${rows}], means[${rows}];
#pragma unroll
    for (int r = 0; r < ${rows}; ++r) {
        ends[r] = lse[min(own + r, queries - 1)] * ${log2e};
        means[r] = delta[min(own + r, queries - 1)];
    }
% endif
    int stage = 0;
    for (int step = 0; step < steps; ++step) {
        const bool turns = column0 + ${tile_n} >= last;
        const int next = turns ? first : column0 + ${tile_n};
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
% if by_keys:
        if (turns) {
            q += q_head;
            grad += grad_head;
        }
% endif
        if (step + 1 < steps) {
${copy_both(f"base + {stage_bytes} - stage", "next")}\
        }
        COPY_COMMIT();
        __local const float4 *x_tile = (__local const float4 *)(tiles + stage) + lane;
        __local const float4 *y_tile = (__local const float4 *)(tiles + stage + ${x_bytes}) + lane;
        const bool edge = column0 + ${tile_n} > ${last("row0")}${below};
        for (int j = 0; j < ${tile_n}; j += ${chunk}) {
            float scores[${rows}][${chunk}], slopes[${rows}][${chunk}];
${share.products("scores", "own_a", f"x_tile + j * {depth // 4}", rows, vectors, lanes, chunk, depth)}\
${share.products("slopes", "own_b", f"y_tile + j * {depth_v // 4}", rows, vectors_v, lanes, chunk, depth_v)}\
#pragma unroll
            for (int c = 0; c < ${chunk}; ++c) {
                const int column = column0 + j + c;
% if by_keys:
                const float end = lse[min(column, queries - 1)] * ${log2e}, mean = delta[min(column, queries - 1)];
% endif
#pragma unroll
                for (int r = 0; r < ${rows}; ++r) {
                    float score = scores[r][c] * (scale * ${log2e}) - ${"end" if by_keys else "ends[r]"};
% if masked:
                    score += ${log2e} * LOAD1(mask + min(${query}, queries - 1) * mask_row + min(${key}, keys - 1) * mask_column);
% endif
                    score = native_exp2(score);
                    if (edge) {
                        score = ${" && ".join(conditions)} ? score : 0.0f;
                    }
                    scores[r][c] = score;
                    slopes[r][c] = score * (slopes[r][c] - ${"mean" if by_keys else "means[r]"}) * scale;
                }
            }
${share.accumulate("sums", "slopes", f"x_tile + j * {depth // 4}", rows, vectors, lanes, chunk, depth)}\
% if by_keys:
${share.accumulate("sums_v", "scores", f"y_tile + j * {depth_v // 4}", rows, vectors_v, lanes, chunk, depth_v)}\
% endif
        }
% if by_keys:
        if (turns) {
            lse += queries;
            delta += queries;
% if masked:
            mask += mask_head;
% endif
        }
% endif
        column0 = next;
        stage = ${stage_bytes} - stage;
    }
${share.store(results[0], f"{results[0]}_row", own_count, "sums", rows, vectors, lanes, dim)}\
% if by_keys:
${share.store("grad_v", "grad_v_row", own_count, "sums_v", rows, vectors_v, lanes, dim_v)}\
% endif
}
<%def name="copy_both(at, first)">\
${share.copy(at, x, f"{x}_row", first, count, tile_n, depth, dim, work_items)}\
${share.copy(f"{at} + {x_bytes}", y, f"{y}_row", first, count, tile_n, depth_v, dim_v, work_items)}\
</%def>\
