<%doc>
Attention on matrix units: out = softmax(scale q k^T + mask) v, in one pass over the keys.

A work-group owns rows of q, whose scores stay in registers: the units write a tile of scores as the
next product reads it, rounded to the operands' dtype (Dao 2023, arXiv:2307.08691). Maxima and sums
run along in powers of two. Tiles of k and v are copied while the units work: with one stage v while
q k^T is computed and the next k while v is added up, with two stages the next k and v. Rows keep
what they are scaled by until a score exceeds it by RESCALE powers of two: sums grow that far at
most, and hardly ever have to be scaled again.

units       text of attention_mma_units.cl.mako
preamble    typedef of elem_t and the macros LOADn and STOREn
warps, blocks_m     warps of a work-group, and blocks of 16 rows that each computes
tile_m, tile_n      rows of q and of k per tile
stages      tiles of k and v that local memory holds
keep        fragments of q stay in registers, else they are read from local memory for each tile
depth, depth_v      items of a row of q and k, and of v, rounded up to 16
dim, dim_v  the same, not rounded
items       of 16 bytes: 4 are fp32, which the units multiply by parts
split_d     warps that share rows, each with a part of the items of q and k, and of v
seen        which keys a query sees: see `Seen`
masked      there is an additive mask
philox      text of attention_philox.cl.mako where probabilities are dropped, else empty
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%namespace name="whole" file="attention_tf32_tiles.cl.mako"/>\
<%namespace name="dropping" file="attention_mma_dropout.cl.mako"/>\
<%
    is_whole = items == 4
    narrow = whole if is_whole else share
    work_items = 32 * warps
    pitch, pitch_v = 16 // items * depth + 16, 16 // items * depth_v + 16
    k_bytes, v_bytes = tile_n * pitch, tile_n * pitch_v
    stage_bytes = k_bytes + v_bytes
    tiles_at = 0 if keep else tile_m * pitch
    parts_at = tiles_at + stages * stage_bytes
    log2e = "1.44269504f"
    RESCALE = "8.0f"
%>\
<%def name="hide(score)">\
<% conditions = [f"column < {seen.last_key('row')}"] + [f"column >= {seen.first_key('row')}"] * (seen.window > 0) %>\
                        ${score} = ${" && ".join(conditions)} ? ${score} : -INFINITY;
</%def>\
<%def name="scaled(score)">\
                        ${score} *= scale * ${log2e};
% if masked:
                        ${score} += ${log2e} * LOAD1(mask + min(row, queries - 1) * mask_row + min(column, keys - 1) * mask_column);
% endif
</%def>\
<%def name="drop(score)">\
                        ${score} = ${dropping.left_of(score)};
</%def>\
<%def name="copy_k(to, first)">\
${share.copy(to, "k", "k_row", first, "keys", tile_n, depth, dim, work_items, items)}\
</%def>\
<%def name="copy_v(to, first)">\
${share.copy(to, "v", "v_row", first, "keys", tile_n, depth_v, dim_v, work_items, items)}\
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
void attention_mma(
${share.parameters(("q", "k", "v", "out"), "fwd", masked, philox)})
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
    out += out_start + batch * out_batch + head * out_head;
    lse += lse_start + get_group_id(1) * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif
% if philox:
${dropping.begin("get_group_id(1)")}\
% endif

    const int last = ${seen.last_key(f"(row0 + {tile_m - 1})")};
    int key0 = ${seen.first_key("row0", tile_n)};
${share.copy("base", "q", "q_row", "row0", "queries", tile_m, depth, dim, work_items, items)}\
    COPY_COMMIT();
% if keep:
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
${share.keep("own_q", "base", depth, blocks_m, items, split_d)}\
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
${copy_k(f"base + {tiles_at}", "key0")}\
% if stages == 2:
${copy_v(f"base + {tiles_at + k_bytes}", "key0")}\
% endif
    COPY_COMMIT();

    float top[${blocks_m}][2], sum[${blocks_m}][2];
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
        top[i][0] = top[i][1] = -INFINITY;
        sum[i][0] = sum[i][1] = 0.0f;
    }
${share.zeros("outs", blocks_m, depth_v // split_d)}\
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
${copy_k("other_stage", "next")}\
${copy_v(f"other_stage + {k_bytes}", "next")}\
        }
        COPY_COMMIT();
% else:
${copy_v(f"stage + {k_bytes}", "key0")}\
        COPY_COMMIT();
% endif
${share.zeros("scores", blocks_m, tile_n)}\
${narrow.products("scores", "own_q" if keep else "base", keep, "stage", depth, blocks_m, tile_n, split_d)}\
% if split_d > 1:
${share.add_parts(("scores",), parts_at, blocks_m, tile_n, split_d)}\
% endif
        {
${share.each("scores", "key0", "row0", blocks_m, tile_n, scaled)}\
        }
        if (next > ${seen.last_key("row0")}${f" || key0 < {seen.first_key(f'(row0 + {tile_m - 1})')}" if seen.window else ""}) {
${share.each("scores", "key0", "row0", blocks_m, tile_n, hide)}\
        }
#pragma unroll
        for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float most = top[i][h];
#pragma unroll
                for (int j = 0; j < ${tile_n // 8}; ++j) {
                    most = fmax(most, fmax(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
                }
                most = fmax(most, from_lane(most, 1));
                most = fmax(most, from_lane(most, 2));
                if (most > top[i][h] + ${RESCALE}) {
                    const float shrink = power_of_two(top[i][h] - most);
                    top[i][h] = most;
                    sum[i][h] *= shrink;
#pragma unroll
                    for (int j = 0; j < ${depth_v // 8 // split_d}; ++j) {
                        outs[i][j][2 * h] *= shrink;
                        outs[i][j][2 * h + 1] *= shrink;
                    }
                }
                // where all is hidden, shift by nothing: the power of -inf is 0 and stays 0
                const float shift = top[i][h] == -INFINITY ? 0.0f : top[i][h];
#pragma unroll
                for (int j = 0; j < ${tile_n // 8}; ++j) {
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; ++e) {
                        scores[i][j][e] = power_of_two(scores[i][j][e] - shift);
                        sum[i][h] += scores[i][j][e];
                    }
                }
            }
        }
% if philox:
        {
${share.each("scores", "key0", "row0", blocks_m, tile_n, drop)}\
        }
% endif
% if stages == 1:
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (next < last) {
${copy_k("stage", "next")}\
        }
        COPY_COMMIT();
% endif
${narrow.accumulate("outs", "scores", f"stage + {k_bytes}", depth_v, blocks_m, tile_n, split_d)}\
% if stages == 2:
        stage = other_stage;
% endif
    }

#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float all = sum[i][h];
            all += from_lane(all, 1);
            all += from_lane(all, 2);
            sum[i][h] = all == 0.0f ? 0.0f : 1.0f / all;
            const int line = row0 + (warp * ${blocks_m} + i) * 16 + h * 8 + lane / 4;
            if (line < queries && lane % 4 == 0${" && part == 0" if split_d > 1 else ""}) {
                // +inf where all is hidden: gradients then find probabilities of 0
                lse[line] = all == 0.0f ? INFINITY : (top[i][h] + log2(all)) * 0.69314718f;
            }
        }
    }
${narrow.store("out", "out_row", "outs", depth_v, dim_v, blocks_m, "row0", "queries", " * sum[i][h]", split_d)}\
}
