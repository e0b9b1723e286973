<%doc>
The gradients of attention's k and v on matrix units: grad_v = P^T grad and grad_k = dS^T q.

As attention_mma_grad_q, with keys as rows and queries as columns; the heads of q that share a head
of k and v follow each other, so nothing is added up from outside.

units, preamble, warps, blocks_m, tile_m, tile_n, seen, masked      as in attention_mma
stages      tiles of q and grad that local memory holds: with two, the next are copied meanwhile
keep        fragments of k and v stay in registers, else they are read from local memory
depth, depth_v      items of a row of q and k, and of v and grad, rounded up to 16
dim, dim_v  the same, not rounded
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%
    work_items = 32 * warps
    pitch, pitch_v = 2 * depth + 16, 2 * depth_v + 16
    q_bytes, grad_bytes = tile_n * pitch, tile_n * pitch_v
    stage_bytes = q_bytes + grad_bytes
    v_at = tile_m * pitch
    tiles_at = 0 if keep else v_at + tile_m * pitch_v
    log2e = "1.44269504f"
%>\
<%def name="probability(score)">\
                        const int query = min(column, queries - 1);
                        ${score} = ${score} * (scale * ${log2e}) - ends[query] * ${log2e};
% if masked:
                        ${score} += ${log2e} * LOAD1(mask_rows + query * mask_row + min(row, keys - 1) * mask_column);
% endif
                        ${score} = native_exp2(${score});
</%def>\
<%def name="hide(score)">\
<% conditions = [f"column < {seen.last_query('row')}"] + [f"column >= {seen.first_query('row')}"] * seen.is_limited %>\
                        ${score} = ${" && ".join(conditions)} ? ${score} : 0.0f;
</%def>\
<%def name="slope(score)">\
                        slopes[i][j][e] = ${score} * (slopes[i][j][e] - means[min(column, queries - 1)]) * scale;
</%def>\
${preamble}
${units}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_mma_grad_kv(
${share.parameters(("q", "k", "v", "grad", "grad_k", "grad_v"), "bwd_kv", masked)})
{
    const int id = (int)get_local_id(0);
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    UNIT_MEMORY
${share.lanes((pitch, pitch_v))}\
    const int row0 = (int)get_group_id(0) * ${tile_m};
    const int shared = heads / shared_by;
    const int batch = get_group_id(1) / shared, shared_head = get_group_id(1) % shared;
    k += k_start + batch * k_batch + shared_head * k_head;
    v += v_start + batch * v_batch + shared_head * v_head;
    grad_k += grad_k_start + batch * grad_k_batch + shared_head * grad_k_head;
    grad_v += grad_v_start + batch * grad_v_batch + shared_head * grad_v_head;
    const long line = batch * heads + shared_head * shared_by;
    q += q_start + batch * q_batch + shared_head * shared_by * q_head;
    grad += grad_start + batch * grad_batch + shared_head * shared_by * grad_head;
    __global const float *ends = lse + lse_start + line * queries, *means = delta + delta_start + line * queries;
% if masked:
    __global const elem_t *mask_rows = mask + mask_start + batch * mask_batch + shared_head * shared_by * mask_head;
% endif

% for name, source, width, at in (("own_k", "k", depth, "base"), ("own_v", "v", depth_v, f"base + {0 if keep else v_at}")):
${share.copy(at, source, f"{source}_row", "row0", "keys", tile_m, width, dim if source == "k" else dim_v, work_items)}\
    COPY_COMMIT();
% if keep:
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
${share.keep(name, at, width, blocks_m)}\
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% endfor
    const int first = ${seen.first_query("row0", tile_n)};
    const int last = ${seen.last_query(f"(row0 + {tile_m - 1})")};
    // a head's tiles of queries, then the next head's
    const int tiles_of_head = max(0, (last - first + ${tile_n - 1}) / ${tile_n});
    const int steps = tiles_of_head * shared_by;
    int query0 = first;
    if (steps > 0) {
${copy_both(f"base + {tiles_at}", "query0")}\
    }
    COPY_COMMIT();
${share.zeros("k_sums", blocks_m, depth)}\
${share.zeros("v_sums", blocks_m, depth_v)}\
    uint stage = base + ${tiles_at};
    for (int step = 0; step < steps; ++step) {
        const bool turns = query0 + ${tile_n} >= last;
        const int next = turns ? first : query0 + ${tile_n};
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (turns) {
            q += q_head;
            grad += grad_head;
        }
% if stages == 2:
        const uint other_stage = ${2 * tiles_at + stage_bytes} + 2 * base - stage;
        if (step + 1 < steps) {
${copy_both("other_stage", "next")}\
        }
        COPY_COMMIT();
% endif
${share.zeros("scores", blocks_m, tile_n)}\
${share.products("scores", "own_k" if keep else "base", keep, "stage", depth, blocks_m, tile_n)}\
        {
${share.each("scores", "query0", "row0", blocks_m, tile_n, probability)}\
        }
        if (query0 + ${tile_n} > ${seen.last_query("row0")}${f" || query0 < {seen.first_query(f'(row0 + {tile_m - 1})')}" if seen.is_limited else ""}) {
${share.each("scores", "query0", "row0", blocks_m, tile_n, hide)}\
        }
${share.accumulate("v_sums", "scores", f"(stage + {q_bytes})", depth_v, blocks_m, tile_n)}\
${share.zeros("slopes", blocks_m, tile_n)}\
${share.products("slopes", "own_v" if keep else f"(base + {v_at})", keep, f"(stage + {q_bytes})", depth_v, blocks_m, tile_n)}\
        {
${share.each("scores", "query0", "row0", blocks_m, tile_n, slope)}\
        }
${share.accumulate("k_sums", "slopes", "stage", depth, blocks_m, tile_n)}\
% if stages == 2:
        stage = other_stage;
% else:
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + 1 < steps) {
${copy_both("stage", "next")}\
        }
        COPY_COMMIT();
% endif
        if (turns) {
            ends += queries;
            means += queries;
% if masked:
            mask_rows += mask_head;
% endif
        }
        query0 = next;
    }
${share.store("grad_k", "grad_k_row", "k_sums", depth, dim, blocks_m, "row0", "keys")}\
${share.store("grad_v", "grad_v_row", "v_sums", depth_v, dim_v, blocks_m, "row0", "keys")}\
}
<%def name="copy_both(at, first)">\
${share.copy(at, "q", "q_row", first, "queries", tile_n, depth, dim, work_items)}\
${share.copy(f"{at} + {q_bytes}", "grad", "grad_row", first, "queries", tile_n, depth_v, dim_v, work_items)}\
</%def>\
