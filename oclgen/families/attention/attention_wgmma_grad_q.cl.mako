<%doc>
The gradient of attention's q by wgmma: grad_q = scale dS k with dS = P (grad v^T - delta).

The probabilities P are computed anew from the rows' lse (Dao et al. 2022, algorithm 4); delta is the
sum of grad * out over a row.

units, preamble, warps, tile_m, tile_n, depth, depth_v, dim, dim_v, seen, masked, philox      as in attention_wgmma
stages      tiles of k and v that local memory holds: with two, the next are copied meanwhile
keep        q and grad stay in registers, else the units read them from local memory
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%namespace name="wide" file="attention_wgmma_tiles.cl.mako"/>\
<%namespace name="dropping" file="attention_mma_dropout.cl.mako"/>\
<%
    work_items = 32 * warps
    k_bytes, v_bytes = 2 * tile_n * depth, 2 * tile_n * depth_v
    stage_bytes = k_bytes + v_bytes
    grad_at = 2 * tile_m * depth
    tiles_at = 0 if keep else grad_at + 2 * tile_m * depth_v
    own_rows = 0 if keep else tile_m
    log2e = "1.44269504f"
    def left_of(value):
        return capture(dropping.left_of, value) if philox else value
%>\
<%def name="probability(score)">\
                        ${score} = ${score} * (scale * ${log2e}) - ends[e / 2];
% if masked:
                        ${score} += ${log2e} * LOAD1(mask + min(row, queries - 1) * mask_row + min(column, keys - 1) * mask_column);
% endif
                        ${score} = power_of_two(${score});
</%def>\
<%def name="hide(score)">\
<% conditions = [f"column < {seen.last_key('row')}"] + [f"column >= {seen.first_key('row')}"] * (seen.window > 0) %>\
                        ${score} = ${" && ".join(conditions)} ? ${score} : 0.0f;
</%def>\
<%def name="slope(score)">\
                        ${score} *= ${left_of("slopes[i][j][e]")} - means[e / 2];
</%def>\
${preamble}
${units}
% if philox:
${dropping.functions(philox)}\
% endif

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_wgmma_grad_q(
${share.parameters(("q", "k", "v", "grad", "grad_q"), "bwd_q", masked, philox)})
{
    const int id = (int)get_local_id(0), lane = id % 32, warp = id / 32;
    __local uchar tiles[${local_bytes}] __attribute__((aligned(1024)));
    UNIT_MEMORY
${wide.place(seen)}\
    const int row0 = (blocks - 1 - block) * ${tile_m};
    const int batch = line_of_all / heads, head = line_of_all % heads;
    q += q_start + batch * q_batch + head * q_head;
    k += k_start + batch * k_batch + head / shared_by * k_head;
    v += v_start + batch * v_batch + head / shared_by * v_head;
    grad += grad_start + batch * grad_batch + head * grad_head;
    grad_q += grad_q_start + batch * grad_q_batch + head * grad_q_head;
    lse += lse_start + line_of_all * (long)queries;
    delta += delta_start + line_of_all * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif
% if philox:
${dropping.begin("line_of_all")}\
% endif

    float ends[2], means[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int line = min(row0 + warp * 16 + h * 8 + lane / 4, queries - 1);
        ends[h] = lse[line] * ${log2e};
        means[h] = delta[line];
    }
${wide.own("own_q", "q", "q_row", "row0", "queries", depth, dim, 0, keep, warps)}\
${wide.own("own_grad", "grad", "grad_row", "row0", "queries", depth_v, dim_v, grad_at, keep, warps)}\
    const int last = ${seen.last_key(f"(row0 + {tile_m - 1})")};
    int key0 = ${seen.first_key("row0", tile_n)};
    uint stage = base + ${tiles_at};
${copy_both("stage", "key0")}\
    COPY_COMMIT();
${share.zeros("sums", 1, depth)}\
    for (; key0 < last; key0 += ${tile_n}) {
        const int next = key0 + ${tile_n};
% if philox:
${dropping.draw("key0", "row0", 1, tile_n)}\
% endif
        COPY_WAIT(0);
        COPIES_FOR_UNITS();
        barrier(CLK_LOCAL_MEM_FENCE);
% if stages == 2:
        const uint other_stage = ${2 * tiles_at + stage_bytes} + 2 * base - stage;
        if (next < last) {
${copy_both("other_stage", "next")}\
        }
        COPY_COMMIT();
% endif
        float scores[1][${tile_n // 8}][4], slopes[1][${tile_n // 8}][4];
        uint4 pairs[${tile_n // 16}];
        MULTIPLY_BEGIN();
${wide.set_scores("scores", "own_q", "stage", depth, tile_n, own_rows)}\
        MULTIPLY_SEND();
${wide.set_scores("slopes", "own_grad", f"(stage + {k_bytes})", depth_v, tile_n, own_rows)}\
        MULTIPLY_SEND();
        MULTIPLY_AWAIT(1);
        SETTLE_SCORES((float *)scores);
        {
${share.each("scores", "key0", "row0", 1, tile_n, probability)}\
        }
        if (next > ${seen.last_key("row0")}${f" || key0 < {seen.first_key(f'(row0 + {tile_m - 1})')}" if seen.window else ""}) {
${share.each("scores", "key0", "row0", 1, tile_n, hide)}\
        }
        MULTIPLY_AWAIT(0);
        SETTLE_SCORES((float *)slopes);
        {
${share.each("scores", "key0", "row0", 1, tile_n, slope)}\
        }
${wide.round_scores("pairs", "scores", tile_n)}\
        MULTIPLY_BEGIN();
${wide.add_rows("sums", "pairs", "stage", tile_n, "ADD_ITEMS")}\
        MULTIPLY_SEND();
        MULTIPLY_AWAIT(0);
        SETTLE_ITEMS((float *)sums);
% if stages == 2:
        stage = other_stage;
% else:
        barrier(CLK_LOCAL_MEM_FENCE);
        if (next < last) {
${copy_both("stage", "next")}\
        }
        COPY_COMMIT();
% endif
    }
${wide.store("grad_q", "grad_q_row", "sums", dim, "row0", "queries", " * scale")}\
}
<%def name="copy_both(at, first)">\
${wide.copy(at, "k", "k_row", first, "keys", tile_n, depth, dim, work_items)}\
${wide.copy(f"{at} + {k_bytes}", "v", "v_row", first, "keys", tile_n, depth_v, dim_v, work_items)}\
</%def>\
