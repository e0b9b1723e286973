<%doc>
The gradients of attention's k and v on matrix units: grad_v = P^T grad and grad_k = dS^T q.

As attention_mma_grad_q, with keys as rows and queries as columns; the heads of q that share a head
of k and v follow each other, so nothing is added up from outside.

unit, units, preamble, warps, blocks_m, tile_m, tile_n, seen, masked, philox      as in attention_mma
stages      tiles of q and grad that local memory holds: with two, the next are copied meanwhile
keep        fragments of k and v stay in registers, else they are read from local memory
depth, depth_v      items of a row of q and k, and of v and grad, rounded up to 16
dim, dim_v  the same, not rounded
items       of 16 bytes: 4 are fp32, which the units multiply by parts
split_d     warps that share rows, each with a part of the items of both operands and of results
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%namespace name="whole" file="attention_tf32_tiles.cl.mako"/>\
<%namespace name="dropping" file="attention_mma_dropout.cl.mako"/>\
<%
    is_whole = items == 4
    units_of = whole if is_whole else share
    work_items = 32 * warps
    pitch, pitch_v = 16 // items * depth + 16, 16 // items * depth_v + 16
    q_bytes, grad_bytes = tile_n * pitch, tile_n * pitch_v
    stage_bytes = q_bytes + grad_bytes
    v_at = tile_m * pitch
    tiles_at = 0 if keep else v_at + tile_m * pitch_v
    numbers_at, numbers_bytes = tiles_at + stages * stage_bytes, 8 * tile_n
    parts_at = numbers_at + stages * numbers_bytes
    log2e = "1.44269504f"
    for_v = "kept_scores" if philox else "scores"
    def left_of(value):
        return capture(dropping.left_of, value, rows_are_keys=True) if philox else value
%>\
<%def name="probability(score)">\
                        ${score} = ${score} * (scale * ${log2e}) - ends_of_tile[column - query0] * ${log2e};
% if masked:
                        ${score} += ${log2e} * LOAD1(mask_rows + min(column, queries - 1) * mask_row + min(row, keys - 1) * mask_column);
% endif
                        ${score} = power_of_two(${score});
</%def>\
<%def name="hide(score)">\
<% conditions = [f"column < {seen.last_query('row')}"] + [f"column >= {seen.first_query('row')}"] * seen.is_limited %>\
                        ${score} = ${" && ".join(conditions)} ? ${score} : 0.0f;
</%def>\
<%def name="drop(score)">\
                        kept_scores[i][j][e] = ${left_of(score)};
</%def>\
<%def name="slope(score)">\
                        slopes[i][j][e] = ${score} * (${left_of("slopes[i][j][e]")} - means_of_tile[column - query0]) * scale;
</%def>\
${preamble}
${units}
% if is_whole:
${whole.functions()}\
% endif
% if philox:
${dropping.functions(philox)}\
% endif

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_mma_grad_kv(
${share.parameters(("q", "k", "v", "grad", "grad_k", "grad_v"), "bwd_kv", masked, philox)})
{
    const int id = (int)get_local_id(0);
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    UNIT_MEMORY
${share.lanes((pitch, pitch_v), split_d)}\
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
% if philox:
${dropping.begin("line")}\
% endif

% for name, source, width, at in (("own_k", "k", depth, "base"), ("own_v", "v", depth_v, f"base + {0 if keep else v_at}")):
${share.copy(at, source, f"{source}_row", "row0", "keys", tile_m, width, dim if source == "k" else dim_v, work_items, items)}\
    COPY_COMMIT();
% if keep:
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
${share.keep(name, at, width, blocks_m, items, split_d)}\
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
${copy_all(f"base + {tiles_at}", f"base + {numbers_at}", "query0")}\
    }
    COPY_COMMIT();
${share.zeros("k_sums", blocks_m, depth // split_d)}\
${share.zeros("v_sums", blocks_m, depth_v // split_d)}\
    uint stage = base + ${tiles_at}, numbers = base + ${numbers_at};
    for (int step = 0; step < steps; ++step) {
        const bool turns = query0 + ${tile_n} >= last;
        const int next = turns ? first : query0 + ${tile_n};
% if philox:
${dropping.draw("query0", "row0", blocks_m, tile_n, rows_are_keys=True)}\
% endif
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (turns) {
            q += q_head;
            grad += grad_head;
            ends += queries;
            means += queries;
        }
% if stages == 2:
        const uint other_stage = ${2 * tiles_at + stage_bytes} + 2 * base - stage;
        const uint other_numbers = ${2 * numbers_at + numbers_bytes} + 2 * base - numbers;
        if (step + 1 < steps) {
${copy_all("other_stage", "other_numbers", "next")}\
        }
        COPY_COMMIT();
% endif
        __local const float *ends_of_tile = (__local const float *)(tiles + (numbers - base)), *means_of_tile = ends_of_tile + ${tile_n};
${share.zeros("scores", blocks_m, tile_n)}\
% if is_whole and keep:
${whole.split_anew("own_k", depth, blocks_m, split_d)}\
${whole.split_anew("own_v", depth_v, blocks_m, split_d)}\
% endif
${units_of.products("scores", "own_k" if keep else "base", keep, "stage", depth, blocks_m, tile_n, split_d)}\
% if split_d > 1:
${slopes()}\
${share.add_parts(("scores", "slopes"), parts_at, blocks_m, tile_n, split_d)}\
% endif
        {
${share.each("scores", "query0", "row0", blocks_m, tile_n, probability)}\
        }
        if (query0 + ${tile_n} > ${seen.last_query("row0")}${f" || query0 < {seen.first_query(f'(row0 + {tile_m - 1})')}" if seen.is_limited else ""}) {
${share.each("scores", "query0", "row0", blocks_m, tile_n, hide)}\
        }
% if philox:
        float kept_scores[${blocks_m}][${tile_n // 8}][4];
        {
${share.each("scores", "query0", "row0", blocks_m, tile_n, drop)}\
        }
% endif
${units_of.accumulate("v_sums", for_v, f"(stage + {q_bytes})", depth_v, blocks_m, tile_n, split_d)}\
% if split_d == 1:
${slopes()}\
% endif
        {
${share.each("scores", "query0", "row0", blocks_m, tile_n, slope)}\
        }
${units_of.accumulate("k_sums", "slopes", "stage", depth, blocks_m, tile_n, split_d)}\
% if stages == 2:
        stage = other_stage;
        numbers = other_numbers;
% else:
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + 1 < steps) {
${copy_all("stage", "numbers", "next")}\
        }
        COPY_COMMIT();
% endif
% if masked:
        if (turns) {
            mask_rows += mask_head;
        }
% endif
% if philox:
        if (turns) {
            counter += (ulong)queries * keys;
        }
% endif
        query0 = next;
    }
${units_of.store("grad_k", "grad_k_row", "k_sums", depth, dim, blocks_m, "row0", "keys", split_d=split_d)}\
${units_of.store("grad_v", "grad_v_row", "v_sums", depth_v, dim_v, blocks_m, "row0", "keys", split_d=split_d)}\
}
<%def name="slopes()">\
${share.zeros("slopes", blocks_m, tile_n)}\
${units_of.products("slopes", "own_v" if keep else f"(base + {v_at})", keep, f"(stage + {q_bytes})", depth_v, blocks_m, tile_n, split_d)}\
</%def>\
<%def name="copy_all(at, numbers, first)">\
${share.copy_numbers(numbers, "ends", first, "queries", tile_n, work_items)}\
${share.copy_numbers(f"{numbers} + {4 * tile_n}", "means", first, "queries", tile_n, work_items)}\
${share.copy(at, "q", "q_row", first, "queries", tile_n, depth, dim, work_items, items)}\
${share.copy(f"{at} + {q_bytes}", "grad", "grad_row", first, "queries", tile_n, depth_v, dim_v, work_items, items)}\
</%def>\
