<%doc>
The gradients of attention's k and v by wgmma: grad_v = P^T grad and grad_k = scale dS^T q.

As attention_wgmma_grad_q, with keys as rows and queries as columns; the heads of q that share a
head of k and v follow each other, so nothing is added up from outside. Tiles of a head come last
first: work-groups that began together read the same tiles together, also where a mask hides the
first ones from some.

units, preamble, warps, tile_m, tile_n, depth, depth_v, dim, dim_v, seen, masked, philox      as in attention_wgmma
stages      tiles of q and grad that local memory holds: with two, the next are copied meanwhile
keep        k and v stay in registers, else the units read them from local memory
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%namespace name="wide" file="attention_wgmma_tiles.cl.mako"/>\
<%namespace name="dropping" file="attention_mma_dropout.cl.mako"/>\
<%
    work_items = 32 * warps
    q_bytes, grad_bytes = 2 * tile_n * depth, 2 * tile_n * depth_v
    stage_bytes = q_bytes + grad_bytes
    v_at = 2 * tile_m * depth
    tiles_at = 0 if keep else v_at + 2 * tile_m * depth_v
    numbers_at, numbers_bytes = tiles_at + stages * stage_bytes, 8 * tile_n
    log2e = "1.44269504f"
    own_rows = 0 if keep else tile_m
    # whether the units compute the scores of the next tile with the sums of this one. On an H100 that is
    # faster where rows are wide and work-groups differ in length, and slower elsewhere: see docs/notebook.md
    ahead = seen.causal and stages == 2 and depth + depth_v > 128
    def left_of(value, i="i"):
        return capture(dropping.left_of, value, rows_are_keys=True).replace("[i]", f"[{i}]") if philox else value
%>\
${preamble}
${units}
% if philox:
${dropping.functions(philox)}\
% endif

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_wgmma_grad_kv(
${share.parameters(("q", "k", "v", "grad", "grad_k", "grad_v"), "bwd_kv", masked, philox)})
{
    const int id = (int)get_local_id(0), lane = id % 32, warp = id / 32;
    __local uchar tiles[${local_bytes}] __attribute__((aligned(1024)));
    UNIT_MEMORY
${wide.place(seen)}\
    const int row0 = block * ${tile_m};
    const int shared = heads / shared_by;
    const int batch = line_of_all / shared, shared_head = line_of_all % shared;
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

    const int first = ${seen.first_query("row0", tile_n)};
    const int last = ${seen.last_query(f"(row0 + {tile_m - 1})")};
    // a head's tiles of queries, then the next head's
    const int tiles_of_head = max(0, (last - first + ${tile_n - 1}) / ${tile_n});
    const int steps = tiles_of_head * shared_by;
${wide.own("own_k", "k", "k_row", "row0", "keys", depth, dim, 0, keep, warps)}\
${wide.own("own_v", "v", "v_row", "row0", "keys", depth_v, dim_v, v_at, keep, warps)}\
    const int end0 = first + (tiles_of_head - 1) * ${tile_n};
    int query0 = end0;
    uint stage = base + ${tiles_at}, numbers = base + ${numbers_at};
    if (steps > 0) {
${copy_tile("stage", "numbers", "query0")}\
    }
    COPY_COMMIT();
${share.zeros("k_sums", 1, depth)}\
${share.zeros("v_sums", 1, depth_v)}\
    float scores[1][${tile_n // 8}][4], slopes[1][${tile_n // 8}][4];
    uint4 pairs[${tile_n // 16}], slope_pairs[${tile_n // 16}];
% if ahead:
    if (steps > 0) {
${await_tile()}\
        MULTIPLY_BEGIN();
${scores_of("stage")}\
        MULTIPLY_AWAIT(0);
        SETTLE_SCORES((float *)scores);
    }
% endif
    for (int step = 0; step < steps; ++step) {
        const bool turns = query0 == first;
        const int next = turns ? end0 : query0 - ${tile_n};
% if stages == 2:
        const uint other_stage = ${2 * tiles_at + stage_bytes} + 2 * base - stage;
        const uint other_numbers = ${2 * numbers_at + numbers_bytes} + 2 * base - numbers;
% endif
% if philox:
${dropping.draw("query0", "row0", 1, tile_n, rows_are_keys=True)}\
% endif
        __local const float *of_tile = (__local const float *)(tiles + (numbers - base));
% if ahead:
        MULTIPLY_BEGIN();
${slopes_of("stage")}\
        // the units have read the tile before this one
        barrier(CLK_LOCAL_MEM_FENCE);
${copy_next()}\
% else:
${await_tile()}\
% if stages == 2:
${copy_next()}\
% endif
        MULTIPLY_BEGIN();
${scores_of("stage")}\
${slopes_of("stage")}\
        MULTIPLY_AWAIT(1);
        SETTLE_SCORES((float *)scores);
% endif
${powers()}\
${to_pairs()}\
        MULTIPLY_BEGIN();
${wide.add_rows("v_sums", "pairs", f"(stage + {q_bytes})", tile_n, "ADD_VALUES")}\
        MULTIPLY_SEND();
        // what is left to be done then are the sums of v alone
        MULTIPLY_AWAIT(1);
        SETTLE_SCORES((float *)slopes);
${to_slopes()}\
% if ahead:
${await_tile()}\
        MULTIPLY_BEGIN();
        // behind the last tile they are of what stands there, which is never used
${scores_of("other_stage")}\
% else:
        MULTIPLY_BEGIN();
% endif
${wide.add_rows("k_sums", "slope_pairs", "stage", tile_n, "ADD_ITEMS")}\
        MULTIPLY_SEND();
        MULTIPLY_AWAIT(0);
% if ahead:
        SETTLE_SCORES((float *)scores);
% endif
        SETTLE_ITEMS((float *)k_sums);
        SETTLE_VALUES((float *)v_sums);
% if stages == 1:
        barrier(CLK_LOCAL_MEM_FENCE);
${copy_next()}\
% else:
        stage = other_stage;
        numbers = other_numbers;
% endif
        if (turns) {
% if masked:
            mask_rows += mask_head;
% endif
% if philox:
            counter += (ulong)queries * keys;
% endif
        }
        query0 = next;
    }
${wide.store("grad_k", "grad_k_row", "k_sums", dim, "row0", "keys", " * scale")}\
${wide.store("grad_v", "grad_v_row", "v_sums", dim_v, "row0", "keys")}\
}
<%def name="await_tile()">\
        COPY_WAIT(0);
        COPIES_FOR_UNITS();
        barrier(CLK_LOCAL_MEM_FENCE);
</%def>\
<%def name="scores_of(at)">\
${wide.set_scores("scores", "own_k", at, depth, tile_n, own_rows)}\
        MULTIPLY_SEND();
</%def>\
<%def name="slopes_of(at)">\
${wide.set_scores("slopes", "own_v", f"({at} + {q_bytes})", depth_v, tile_n, own_rows)}\
        MULTIPLY_SEND();
</%def>\
<%def name="copy_tile(at, numbers, first)">\
${share.copy_numbers(numbers, "ends", first, "queries", tile_n, work_items)}\
${share.copy_numbers(f"{numbers} + {4 * tile_n}", "means", first, "queries", tile_n, work_items)}\
${wide.copy(at, "q", "q_row", first, "queries", tile_n, depth, dim, work_items)}\
${wide.copy(f"{at} + {q_bytes}", "grad", "grad_row", first, "queries", tile_n, depth_v, dim_v, work_items)}\
</%def>\
<%doc> Copies the tile after the one at query0, which the next head's may be. </%doc>
<%def name="copy_next()">\
        if (turns) {
            q += q_head;
            grad += grad_head;
            ends += queries;
            means += queries;
        }
        if (step + 1 < steps) {
${copy_tile(*(("other_stage", "other_numbers") if stages == 2 else ("stage", "numbers")), "next")}\
        }
        COPY_COMMIT();
</%def>\
<%def name="powers()">\
#pragma unroll
        for (int j = 0; j < ${tile_n // 8}; ++j) {
            const float2 end = *(__local const float2 *)(of_tile + j * 8 + lane % 4 * 2) * ${log2e};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float score = fma(scores[0][j][e], scale * ${log2e}, e % 2 ? -end.y : -end.x);
% if masked:
                const int row = row0 + warp * 16 + e / 2 * 8 + lane / 4, column = query0 + j * 8 + lane % 4 * 2 + e % 2;
                score += ${log2e} * LOAD1(mask_rows + min(column, queries - 1) * mask_row + min(row, keys - 1) * mask_column);
% endif
                scores[0][j][e] = power_of_two(score);
            }
        }
        if (query0 + ${tile_n} > ${seen.last_query("row0")}${f" || query0 < {seen.first_query(f'(row0 + {tile_m - 1})')}" if seen.is_limited else ""}) {
${share.each("scores", "query0", "row0", 1, tile_n, hide)}\
        }
</%def>\
<%def name="hide(score)">\
<% conditions = [f"column < {seen.last_query('row')}"] + [f"column >= {seen.first_query('row')}"] * seen.is_limited %>\
                        ${score} = ${" && ".join(conditions)} ? ${score} : 0.0f;
</%def>\
<%def name="drop(score)">\
                        kept_scores[i][j][e] = ${left_of(score)};
</%def>\
<%def name="to_pairs()">\
% if philox:
        float kept_scores[1][${tile_n // 8}][4];
        {
${share.each("scores", "query0", "row0", 1, tile_n, drop)}\
        }
% endif
${wide.round_scores("pairs", "kept_scores" if philox else "scores", tile_n)}\
</%def>\
<%def name="to_slopes()">\
#pragma unroll
        for (int j = 0; j < ${tile_n // 8}; ++j) {
            const float2 mean = *(__local const float2 *)(of_tile + ${tile_n} + j * 8 + lane % 4 * 2);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                slopes[0][j][e] = scores[0][j][e] * (${left_of("slopes[0][j][e]", "0")} - (e % 2 ? mean.y : mean.x));
            }
        }
${wide.round_scores("slope_pairs", "slopes", tile_n)}\
</%def>\
