<%doc>
Attention by wgmma: out = softmax(scale q k^T + mask) v, in one pass over the keys.

Four warps own 64 rows of q, whose scores and sums stay in registers. The units compute the scores of
one tile and add up the values of the tile before it, while the warps turn scores into powers of
two (Shah 2024, arXiv:2407.08608). Meanwhile the next tile of k and this one of v are copied: local
memory holds two of each. Rows keep what they are scaled by until a score exceeds it by RESCALE
powers of two, as in attention_mma.

units       text of attention_wgmma_units.cl.mako
preamble    typedef of elem_t and the macros LOADn and STOREn
warps       warps of a work-group, a multiple of four
tile_m, tile_n      rows of q and of k per tile
depth, depth_v      items of a row of q and k, and of v, rounded up to 64
dim, dim_v  the same, not rounded
keep        q stays in registers, else the units read it from local memory
seen        which keys a query sees: see `Seen`
masked      there is an additive mask
philox      text of attention_philox.cl.mako where probabilities are dropped, else empty
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%namespace name="wide" file="attention_wgmma_tiles.cl.mako"/>\
<%namespace name="dropping" file="attention_mma_dropout.cl.mako"/>\
<%
    work_items = 32 * warps
    k_bytes, v_bytes = 2 * tile_n * depth, 2 * tile_n * depth_v
    tiles_at = 0 if keep else 2 * tile_m * depth
    v_at = tiles_at + 2 * k_bytes
    own_rows = 0 if keep else tile_m
    log2e = "1.44269504f"
    RESCALE = "8.0f"
    # a mask is added to scores that are scaled; without one they are scaled where 2^x is computed
    scaled = "{} * factor" if not masked else "{}"
%>\
<%def name="add_mask(score)">\
                        ${score} = fma(${score}, scale * ${log2e}, ${log2e} * LOAD1(mask + min(row, queries - 1) * mask_row + min(column, keys - 1) * mask_column));
</%def>\
<%def name="hide(score)">\
<% conditions = [f"column < {seen.last_key('row')}"] + [f"column >= {seen.first_key('row')}"] * (seen.window > 0) %>\
                        ${score} = ${" && ".join(conditions)} ? ${score} : -INFINITY;
</%def>\
<%def name="drop(score)">\
                        ${score} = ${dropping.left_of(score)};
</%def>\
<%def name="copy_k(to, first)">\
${wide.copy(to, "k", "k_row", first, "keys", tile_n, depth, dim, work_items)}\
</%def>\
<%def name="copy_v(to, first)">\
${wide.copy(to, "v", "v_row", first, "keys", tile_n, depth_v, dim_v, work_items)}\
</%def>\
${preamble}
${units}
% if philox:
${dropping.functions(philox)}\
% endif

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void attention_wgmma(
${share.parameters(("q", "k", "v", "out"), "fwd", masked, philox)})
{
    const int id = (int)get_local_id(0), lane = id % 32, warp = id / 32;
    __local uchar tiles[${local_bytes}] __attribute__((aligned(1024)));
    UNIT_MEMORY
    // rows that see most keys come first, so that none of them is left for the end
${wide.place(seen)}\
    const int row0 = (blocks - 1 - block) * ${tile_m};
    const int batch = line_of_all / heads, head = line_of_all % heads;
    q += q_start + batch * q_batch + head * q_head;
    k += k_start + batch * k_batch + head / shared_by * k_head;
    v += v_start + batch * v_batch + head / shared_by * v_head;
    out += out_start + batch * out_batch + head * out_head;
    lse += lse_start + line_of_all * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif
% if philox:
${dropping.begin("line_of_all")}\
% endif

    const int last = ${seen.last_key(f"(row0 + {tile_m - 1})")};
    int key0 = ${seen.first_key("row0", tile_n)};
    uint k_tile = base${f" + {tiles_at}" if tiles_at else ""}, v_tile = base + ${v_at};
% if not keep:
${wide.own("own_q", "q", "q_row", "row0", "queries", depth, dim, 0, keep, warps)}\
% endif
${copy_k("k_tile", "key0")}\
    COPY_COMMIT();
${copy_v("v_tile", "key0")}\
    if (key0 + ${tile_n} < last) {
${copy_k(f"k_tile + {k_bytes}", f"(key0 + {tile_n})")}\
    }
    COPY_COMMIT();
% if keep:
${wide.own("own_q", "q", "q_row", "row0", "queries", depth, dim, 0, keep, warps)}\
% endif
% if not masked:
    // the largest score is the largest scaled one if the factor is above 0: q takes its sign
    const float factor = fmax(fabs(scale) * ${log2e}, 0x1p-100f);
% if keep:
#pragma unroll
    for (int i = 0; i < ${depth // 16}; ++i) {
        own_q[i] ^= (uint4)(scale < 0.0f ? 0x80008000u : 0u);
    }
% else:
    if (scale < 0.0f) {
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        __local uint *pairs_of_q = (__local uint *)tiles;
        for (int i = id; i < ${tile_m * depth // 2}; i += ${work_items}) {
            pairs_of_q[i] ^= 0x80008000u;
        }
    }
% endif
% endif
    float top[2], sum[2], shrink[2];
    top[0] = top[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
${share.zeros("outs", 1, depth_v)}\
    float scores[1][${tile_n // 8}][4];
    uint4 pairs[${tile_n // 16}];

% if philox:
${dropping.draw("key0", "row0", 1, tile_n)}\
% endif
    COPY_WAIT(1);
    COPIES_FOR_UNITS();
    barrier(CLK_LOCAL_MEM_FENCE);
    MULTIPLY_BEGIN();
${wide.set_scores("scores", "own_q", "k_tile", depth, tile_n, own_rows)}\
    MULTIPLY_SEND();
    MULTIPLY_AWAIT(0);
    SETTLE_SCORES((float *)scores);
${powers()}\
${wide.round_scores("pairs", "scores", tile_n)}\
    for (key0 += ${tile_n}; key0 < last; key0 += ${tile_n}) {
% if philox:
${dropping.draw("key0", "row0", 1, tile_n)}\
% endif
        COPY_WAIT(0);
        COPIES_FOR_UNITS();
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint next_k = k_tile, last_v = v_tile;
        k_tile = 2 * base + ${2 * tiles_at + k_bytes} - k_tile;
        v_tile = 2 * base + ${2 * v_at + v_bytes} - v_tile;
        if (key0 + ${tile_n} < last) {
${copy_k("next_k", f"(key0 + {tile_n})")}\
        }
${copy_v("v_tile", "key0")}\
        COPY_COMMIT();
        MULTIPLY_BEGIN();
${wide.set_scores("scores", "own_q", "k_tile", depth, tile_n, own_rows)}\
        MULTIPLY_SEND();
${wide.add_rows("outs", "pairs", "last_v", tile_n, "ADD_VALUES")}\
        MULTIPLY_SEND();
        MULTIPLY_AWAIT(1);
        SETTLE_SCORES((float *)scores);
${powers()}\
        SETTLE_SCORES((float *)scores);
        // the branch also keeps the compiler from waiting before it has scheduled the powers
        if (any_lane(shrink[0] != 1.0f || shrink[1] != 1.0f)) {
            MULTIPLY_AWAIT(0);
            SETTLE_VALUES((float *)outs);
#pragma unroll
            for (int j = 0; j < ${depth_v // 8}; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    outs[0][j][e] *= shrink[e / 2];
                }
            }
        }
        MULTIPLY_AWAIT(0);
        SETTLE_VALUES((float *)outs);
${wide.round_scores("pairs", "scores", tile_n)}\
    }
    COPY_WAIT(0);
    COPIES_FOR_UNITS();
    barrier(CLK_LOCAL_MEM_FENCE);
    MULTIPLY_BEGIN();
${wide.add_rows("outs", "pairs", "v_tile", tile_n, "ADD_VALUES")}\
    MULTIPLY_SEND();
    MULTIPLY_AWAIT(0);
    SETTLE_VALUES((float *)outs);

#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float all = sum[h];
        all += from_lane(all, 1);
        all += from_lane(all, 2);
        sum[h] = all == 0.0f ? 0.0f : 1.0f / all;
        const int line = row0 + warp * 16 + h * 8 + lane / 4;
        if (line < queries && lane % 4 == 0) {
            // +inf where all is hidden: gradients then find probabilities of 0
            lse[line] = all == 0.0f ? INFINITY : (${scaled.format("top[h]")} + log2(all)) * 0.69314718f;
        }
    }
${wide.store("out", "out_row", "outs", dim_v, "row0", "queries", " * sum[h]")}\
}
<%doc> Scores of the tile at key0 become powers of two; `shrink` says what sums so far are worth. </%doc>
<%def name="powers()">\
% if masked:
        {
${share.each("scores", "key0", "row0", 1, tile_n, add_mask)}\
        }
% endif
        if (key0 + ${tile_n} > ${seen.last_key("row0")}${f" || key0 < {seen.first_key(f'(row0 + {tile_m - 1})')}" if seen.window else ""}) {
${share.each("scores", "key0", "row0", 1, tile_n, hide)}\
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float most = top[h];
#pragma unroll
            for (int j = 0; j < ${tile_n // 8}; ++j) {
                most = fmax(most, fmax(scores[0][j][2 * h], scores[0][j][2 * h + 1]));
            }
            most = fmax(most, from_lane(most, 1));
            most = fmax(most, from_lane(most, 2));
            // no branches: the compiler would wait for the units before them
            const float grown = ${scaled.format("(most - top[h])")};
            shrink[h] = grown > ${RESCALE} ? power_of_two(-grown) : 1.0f;
            top[h] = grown > ${RESCALE} ? most : top[h];
            sum[h] *= shrink[h];
            // where all is hidden, shift by nothing: the power of -inf is 0 and stays 0
            const float shift = top[h] == -INFINITY ? 0.0f : ${scaled.format("top[h]")};
#pragma unroll
            for (int j = 0; j < ${tile_n // 8}; ++j) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; ++e) {
                    scores[0][j][e] = power_of_two(${"scores[0][j][e] - shift" if masked else "fma(scores[0][j][e], factor, -shift)"});
                    sum[h] += scores[0][j][e];
                }
            }
        }
% if philox:
        {
${share.each("scores", "key0", "row0", 1, tile_n, drop)}\
        }
% endif
</%def>\
