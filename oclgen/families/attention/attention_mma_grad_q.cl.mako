<%doc>
The gradient of attention's q on matrix units: grad_q = dS k with dS = scale P (grad v^T - delta).

The probabilities P are computed anew from the rows' lse (Dao et al. 2022, algorithm 4); delta is the
sum of grad * out over a row.

unit, units, preamble, warps, blocks_m, tile_m, tile_n, seen, masked, philox      as in attention_mma
stages      tiles of k and v that local memory holds: with two, the next are copied meanwhile
keep        fragments of q and grad stay in registers, else they are read from local memory
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
    k_bytes, v_bytes = tile_n * pitch, tile_n * pitch_v
    stage_bytes = k_bytes + v_bytes
    grad_at = tile_m * pitch
    tiles_at = 0 if keep else grad_at + tile_m * pitch_v
    parts_at = tiles_at + stages * stage_bytes
    log2e = "1.44269504f"
    def left_of(value):
        return capture(dropping.left_of, value) if philox else value
%>\
<%def name="probability(score)">\
                        ${score} = ${score} * (scale * ${log2e}) - ends[i][e / 2];
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
                        ${score} *= (${left_of("slopes[i][j][e]")} - means[i][e / 2]) * scale;
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
void attention_mma_grad_q(
${share.parameters(("q", "k", "v", "grad", "grad_q"), "bwd_q", masked, philox)})
{
    const int id = (int)get_local_id(0);
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    UNIT_MEMORY
${share.lanes((pitch, pitch_v), split_d)}\
    // rows that see most keys come first, so that none of them is left for the end
    const int row0 = (int)(get_num_groups(0) - 1 - get_group_id(0)) * ${tile_m};
    const int batch = get_group_id(1) / heads, head = get_group_id(1) % heads;
    q += q_start + batch * q_batch + head * q_head;
    k += k_start + batch * k_batch + head / shared_by * k_head;
    v += v_start + batch * v_batch + head / shared_by * v_head;
    grad += grad_start + batch * grad_batch + head * grad_head;
    grad_q += grad_q_start + batch * grad_q_batch + head * grad_q_head;
    lse += lse_start + get_group_id(1) * (long)queries;
    delta += delta_start + get_group_id(1) * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif
% if philox:
${dropping.begin("get_group_id(1)")}\
% endif

    float ends[${blocks_m}][2], means[${blocks_m}][2];
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int line = min(row0 + (warp * ${blocks_m} + i) * 16 + h * 8 + lane / 4, queries - 1);
            ends[i][h] = lse[line] * ${log2e};
            means[i][h] = delta[line];
        }
    }
% for name, source, dims, width, at in (("own_q", "q", "dim", depth, "base"), ("own_grad", "grad", "dim_v", depth_v, f"base + {0 if keep else grad_at}")):
${share.copy(at, source, f"{source}_row", "row0", "queries", tile_m, width, dim if source == "q" else dim_v, work_items, items)}\
    COPY_COMMIT();
% if keep:
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
${share.keep(name, at, width, blocks_m, items, split_d)}\
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% endfor
    const int last = ${seen.last_key(f"(row0 + {tile_m - 1})")};
    int key0 = ${seen.first_key("row0", tile_n)};
${copy_both(f"base + {tiles_at}", "key0")}\
    COPY_COMMIT();
${share.zeros("sums", blocks_m, depth // split_d)}\
    uint stage = base + ${tiles_at};
    for (; key0 < last; key0 += ${tile_n}) {
        const int next = key0 + ${tile_n};
% if philox:
${dropping.draw("key0", "row0", blocks_m, tile_n)}\
% endif
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
% if stages == 2:
        const uint other_stage = ${2 * tiles_at + stage_bytes} + 2 * base - stage;
        if (next < last) {
${copy_both("other_stage", "next")}\
        }
        COPY_COMMIT();
% endif
${share.zeros("scores", blocks_m, tile_n)}\
${units_of.products("scores", "own_q" if keep else "base", keep, "stage", depth, blocks_m, tile_n, split_d)}\
${share.zeros("slopes", blocks_m, tile_n)}\
${units_of.products("slopes", "own_grad" if keep else f"(base + {grad_at})", keep, f"(stage + {k_bytes})", depth_v, blocks_m, tile_n, split_d)}\
% if split_d > 1:
${share.add_parts(("scores", "slopes"), parts_at, blocks_m, tile_n, split_d)}\
% endif
        {
${share.each("scores", "key0", "row0", blocks_m, tile_n, probability)}\
        }
        if (next > ${seen.last_key("row0")}${f" || key0 < {seen.first_key(f'(row0 + {tile_m - 1})')}" if seen.window else ""}) {
${share.each("scores", "key0", "row0", blocks_m, tile_n, hide)}\
        }
        {
${share.each("scores", "key0", "row0", blocks_m, tile_n, slope)}\
        }
${units_of.accumulate("sums", "scores", "stage", depth, blocks_m, tile_n, split_d)}\
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
${units_of.store("grad_q", "grad_q_row", "sums", depth, dim, blocks_m, "row0", "queries", split_d=split_d)}\
}
<%def name="copy_both(at, first)">\
${share.copy(at, "k", "k_row", first, "keys", tile_n, depth, dim, work_items, items)}\
${share.copy(f"{at} + {k_bytes}", "v", "v_row", first, "keys", tile_n, depth_v, dim_v, work_items, items)}\
</%def>\
