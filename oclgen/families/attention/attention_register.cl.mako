<%doc>
Attention in one pass over the keys: out = softmax(scale q k^T + mask) v, by rows of q.

Maxima and sums run along and what has been added up is scaled as they change (online softmax:
Milakov and Gimelshein 2018; Dao et al. 2022), so that scores exist one tile at a time.

tiles       text of attention_tiles.cl.mako
local_m, local_n, item_m, item_v, vec   as there
loop_m      blocks of rows that a work-item computes one after the other
tile_m, tile_n  rows of q and of k per tile
depth       items of a row of q and k, rounded up to vec
width       items of a row of v, rounded up to whole register tiles
dim, dim_v  the same, not rounded
pad         floats between rows of local memory, against bank conflicts
seen        which keys a query sees: see `Seen`
masked, philox      as in attention_tiles
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
    rows = range(item_m)
    span = item_v * local_n * vec
    score_chunks, chunks = tile_n // span, width // span
    scores, outs = score_chunks * item_v, chunks * item_v
    pitch_q, pitch_p = depth + pad, tile_n + pad
    def tensor(name, const="const "):
        return (f"__global {const}elem_t *restrict {name}, const long {name}_start, "
                f"const long {name}_batch, const long {name}_head, const long {name}_row,")
%>\
${tiles}

__kernel __attribute__((reqd_work_group_size(${local_n}, ${local_m}, 1)))
void attention_register(
    ${tensor("q")}
    ${tensor("k")}
    ${tensor("v")}
    ${tensor("out", "")}
    __global float *restrict lse, const long lse_start,
% if masked:
    ${tensor("mask")} const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys,
% if philox:
    const float chance, __global const long *restrict random, const long random_start,
% endif
    const float scale)
{
    TILE(q_tile, ${tile_m * pitch_q});
    TILE(kv_tile, ${max(depth * tile_n, tile_n * width)});
    TILE(p_tile, ${tile_m * pitch_p});
% if local_n > 1:
    __local float parts[${tile_m * local_n}];
% endif
% if philox:
    const ulong seed = random[random_start];
    const ulong counter = random[random_start + 1] + get_group_id(2) * (ulong)queries * keys;
% endif
    const int lane = get_local_id(0), block = get_local_id(1) * ${item_m};
    const int row0 = get_group_id(1) * ${tile_m};
    const int batch = get_group_id(2) / heads, head = get_group_id(2) % heads;
    q += q_start + batch * q_batch + head * q_head;
    k += k_start + batch * k_batch + head / shared_by * k_head;
    v += v_start + batch * v_batch + head / shared_by * v_head;
    out += out_start + batch * out_batch + head * out_head;
    lse += lse_start + get_group_id(2) * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif
    load_rows(q_tile, ${pitch_q}, ${tile_m}, ${depth}, q + row0 * q_row, q_row, queries - row0, ${dim});

    float top[${loop_m * item_m}], sum[${loop_m * item_m}];
    ${vf} outs[${loop_m * item_m * outs}];
    for (int r = 0; r < ${loop_m * item_m}; ++r) {
        top[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    for (int i = 0; i < ${loop_m * item_m * outs}; ++i) {
        outs[i] = 0.0f;
    }
    const int last = ${seen.last_key(f"(row0 + {tile_m - 1})")};
    for (int key0 = ${seen.first_key("row0", tile_n)}; key0 < last; key0 += ${tile_n}) {
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(kv_tile, ${tile_n}, ${depth}, k + key0 * k_row, k_row, keys - key0, ${dim});
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int step = 0; step < ${loop_m}; ++step) {
            const int first = step * ${local_m * item_m} + block;
            ${vf} score[${item_m * scores}];
            for (int i = 0; i < ${item_m * scores}; ++i) {
                score[i] = 0.0f;
            }
% if local_n == 1:
            float score_top[${item_m}];
% endif
% for c in range(score_chunks):
            product(score + ${c * item_v}, ${scores}, q_tile + first * ${pitch_q}, ${pitch_q},
                    kv_tile + ${c * span} + lane * ${vec}, ${tile_n}, ${depth});
% endfor
% for r in rows:
            {
                const int row = row0 + first + ${r};
                ${vf} most = -INFINITY;
% for s in range(scores):
                {
                    const int column = key0 + ${s * local_n * vec} + lane * ${vec};
                    ${vf} value = score[${r * scores + s}] * scale;
% if masked:
                    value += mask_of(mask + min(row, queries - 1) * mask_row + column * mask_column,
                                     mask_column, keys - column);
% endif
                    value = within(value, column, ${seen.first_key("row")}, ${seen.last_key("row")});
                    score[${r * scores + s}] = value;
                    most = fmax(most, value);
                }
% endfor
% if local_n > 1:
                parts[(first + ${r}) * ${local_n} + lane] = largest(most);
% else:
                score_top[${r}] = largest(most);
% endif
            }
% endfor
% if local_n > 1:
            barrier(CLK_LOCAL_MEM_FENCE);
% endif
% for r in rows:
            {
                const int r = step * ${item_m} + ${r};
% if local_n > 1:
                float highest = top[r];
                for (int i = 0; i < ${local_n}; ++i) {
                    highest = fmax(highest, parts[(first + ${r}) * ${local_n} + i]);
                }
% else:
                const float highest = fmax(top[r], score_top[${r}]);
% endif
                // where all is masked, shift by nothing: exp(-inf) is 0 and stays 0
                const float shift = highest == -INFINITY ? 0.0f : highest;
                const float shrink = exp(top[r] - shift);
                top[r] = highest;
                ${vf} added = 0.0f;
% for s in range(scores):
                {
                    const int column = ${s * local_n * vec} + lane * ${vec};
                    ${vf} p = exp(score[${r * scores + s}] - shift);
                    added += p;
% if philox:
                    p *= kept(seed, counter, (${vi})(row0 + first + ${r}), key0 + column + LANES, keys, chance);
% endif
                    *(__local ${vf} *)(p_tile + (first + ${r}) * ${pitch_p} + column) = p;
                }
% endfor
                sum[r] = sum[r] * shrink + total(added);
                for (int i = 0; i < ${outs}; ++i) {
                    outs[r * ${outs} + i] *= shrink;
                }
            }
% endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        load_rows(kv_tile, ${width}, ${tile_n}, ${width}, v + key0 * v_row, v_row, keys - key0, ${dim_v});
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int step = 0; step < ${loop_m}; ++step) {
            const int first = step * ${local_m * item_m} + block;
% for c in range(chunks):
            product(outs + step * ${item_m * outs} + ${c * item_v}, ${outs}, p_tile + first * ${pitch_p},
                    ${pitch_p}, kv_tile + ${c * span} + lane * ${vec}, ${width}, ${tile_n});
% endfor
        }
    }

#pragma unroll // sums are arrays, which stay in registers only where every index is constant
    for (int step = 0; step < ${loop_m}; ++step) {
#pragma unroll
        for (int i = 0; i < ${item_m}; ++i) {
            const int r = step * ${item_m} + i, place = step * ${local_m * item_m} + block + i;
            float all = sum[r];
% if local_n > 1:
            barrier(CLK_LOCAL_MEM_FENCE);
            parts[place * ${local_n} + lane] = all;
            barrier(CLK_LOCAL_MEM_FENCE);
            all = 0.0f;
            for (int j = 0; j < ${local_n}; ++j) {
                all += parts[place * ${local_n} + j];
            }
% endif
            const int row = row0 + place;
            if (row < queries) {
                const float part = all == 0.0f ? 0.0f : 1.0f / all;
#pragma unroll
                for (int j = 0; j < ${outs}; ++j) {
                    const int column = (j * ${local_n} + lane) * ${vec};
                    store_part(out + row * out_row + column, outs[r * ${outs} + j] * part, ${dim_v} - column);
                }
                if (lane == 0) {
                    // +inf where all is masked: the backward pass then finds probabilities of 0
                    lse[row] = all == 0.0f ? INFINITY : top[r] + log(all);
                }
            }
        }
    }
}
