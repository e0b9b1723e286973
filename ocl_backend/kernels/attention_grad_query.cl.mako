<%doc>
The gradient of attention's q, by rows of q: grad_q = dS k with dS = scale P (grad v^T - delta).

The probabilities P are computed anew from the rows' logsumexp (Dao et al. 2022, algorithm 4); delta
is the sum of grad * out over a row.

tiles       text of attention_tiles.cl.mako
local_m, local_n, item_m, item_v, vec, loop_m, tile_m, tile_n, pad      as in attention_forward
depth       items of a row of q and k, rounded up to vec; depth_v those of v and grad
width       items of a row of q, rounded up to whole register tiles
dim, dim_v  the same, not rounded
causal, masked, dropout     as in attention_forward
</%doc>
<%
    vf = f"float{vec}"
    span = item_v * local_n * vec
    score_chunks, chunks = tile_n // span, width // span
    scores, outs = score_chunks * item_v, chunks * item_v
    pitch_q, pitch_g, pitch_p = depth + pad, depth_v + pad, tile_n + pad
    def tensor(name, const="const "):
        return (f"__global {const}elem_t *restrict {name}, const long {name}_start, "
                f"const long {name}_batch, const long {name}_head, const long {name}_row,")
%>\
${tiles}

__kernel __attribute__((reqd_work_group_size(${local_n}, ${local_m}, 1)))
void attention_grad_query(
    ${tensor("q")}
    ${tensor("k")}
    ${tensor("v")}
    ${tensor("grad")}
    ${tensor("grad_q", "")}
    __global const float *restrict logsumexp, const long logsumexp_start,
    __global const float *restrict delta, const long delta_start,
% if masked:
    ${tensor("mask")} const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys,
% if dropout:
    const float chance, const long seed, const long offset,
% endif
    const float scale)
{
    __local float q_tile[${tile_m * pitch_q}];
    __local float grad_tile[${tile_m * pitch_g}];
    __local float kv_tile[${max(depth * tile_n, depth_v * tile_n, tile_n * width)}];
    __local float p_tile[${tile_m * pitch_p}];
    const int lane = get_local_id(0), block = get_local_id(1) * ${item_m};
    const int row0 = get_group_id(1) * ${tile_m};
    const int batch = get_group_id(2) / heads, head = get_group_id(2) % heads;
    q += q_start + batch * q_batch + head * q_head;
    k += k_start + batch * k_batch + head / shared_by * k_head;
    v += v_start + batch * v_batch + head / shared_by * v_head;
    grad += grad_start + batch * grad_batch + head * grad_head;
    grad_q += grad_q_start + batch * grad_q_batch + head * grad_q_head;
    logsumexp += logsumexp_start + get_group_id(2) * (long)queries;
    delta += delta_start + get_group_id(2) * (long)queries;
% if masked:
    mask += mask_start + batch * mask_batch + head * mask_head;
% endif
    load_rows(q_tile, ${pitch_q}, ${tile_m}, ${depth}, q + row0 * q_row, q_row, queries - row0, ${dim});
    load_rows(grad_tile, ${pitch_g}, ${tile_m}, ${depth_v}, grad + row0 * grad_row, grad_row,
              queries - row0, ${dim_v});

    ${vf} outs[${loop_m * item_m * outs}];
    for (int i = 0; i < ${loop_m * item_m * outs}; ++i) {
        outs[i] = 0.0f;
    }
    const int last = ${f"min(keys, row0 + {tile_m})" if causal else "keys"};
    for (int key0 = 0; key0 < last; key0 += ${tile_n}) {
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(kv_tile, ${tile_n}, ${depth}, k + key0 * k_row, k_row, keys - key0, ${dim});
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int step = 0; step < ${loop_m}; ++step) {
            const int first = step * ${local_m * item_m} + block;
            ${vf} score[${item_m * scores}];
            for (int i = 0; i < ${item_m * scores}; ++i) {
                score[i] = 0.0f;
            }
% for c in range(score_chunks):
            product(score + ${c * item_v}, ${scores}, q_tile + first * ${pitch_q}, ${pitch_q},
                    kv_tile + ${c * span} + lane * ${vec}, ${tile_n}, ${depth});
% endfor
            for (int r = 0; r < ${item_m}; ++r) {
                const int row = min(row0 + first + r, queries - 1);
                for (int s = 0; s < ${scores}; ++s) {
                    const int column = (s * ${local_n} + lane) * ${vec};
                    ${vf} value = score[r * ${scores} + s] * scale;
% if masked:
                    value += mask_of(mask + row * mask_row + (key0 + column) * mask_column,
                                     mask_column, keys - key0 - column);
% endif
                    value = within(value, key0 + column, 0, ${"min(keys, row + 1)" if causal else "keys"});
                    vstore${vec}(exp(value - logsumexp[row]), 0, p_tile + (first + r) * ${pitch_p} + column);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(kv_tile, ${tile_n}, ${depth_v}, v + key0 * v_row, v_row, keys - key0, ${dim_v});
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int step = 0; step < ${loop_m}; ++step) {
            const int first = step * ${local_m * item_m} + block;
            ${vf} score[${item_m * scores}];
            for (int i = 0; i < ${item_m * scores}; ++i) {
                score[i] = 0.0f;
            }
% for c in range(score_chunks):
            product(score + ${c * item_v}, ${scores}, grad_tile + first * ${pitch_g}, ${pitch_g},
                    kv_tile + ${c * span} + lane * ${vec}, ${tile_n}, ${depth_v});
% endfor
            for (int r = 0; r < ${item_m}; ++r) {
                const int row = min(row0 + first + r, queries - 1);
                for (int s = 0; s < ${scores}; ++s) {
                    const int column = (s * ${local_n} + lane) * ${vec};
                    __local float *p = p_tile + (first + r) * ${pitch_p} + column;
                    ${vf} value = score[r * ${scores} + s];
% if dropout:
                    const ulong line = get_group_id(2) * (ulong)queries + row;
                    value *= kept(seed, offset + line * keys + key0 + column, 1, chance);
% endif
                    vstore${vec}(vload${vec}(0, p) * (value - delta[row]) * scale, 0, p);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        load_rows(kv_tile, ${width}, ${tile_n}, ${width}, k + key0 * k_row, k_row, keys - key0, ${dim});
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int step = 0; step < ${loop_m}; ++step) {
            const int first = step * ${local_m * item_m} + block;
% for c in range(chunks):
            product(outs + step * ${item_m * outs} + ${c * item_v}, ${outs}, p_tile + first * ${pitch_p},
                    ${pitch_p}, kv_tile + ${c * span} + lane * ${vec}, ${width}, ${tile_n});
% endfor
        }
    }

    for (int step = 0; step < ${loop_m}; ++step) {
        for (int i = 0; i < ${item_m}; ++i) {
            const int row = row0 + step * ${local_m * item_m} + block + i;
            for (int j = 0; row < queries && j < ${outs}; ++j) {
                const int column = (j * ${local_n} + lane) * ${vec};
                store_part(grad_q + row * grad_q_row + column, outs[(step * ${item_m} + i) * ${outs} + j],
                           ${dim} - column);
            }
        }
    }
}
