<%doc>
The gradient of attention's q, by rows of q: grad_q = dS k with dS = scale P (grad v^T - delta).

The probabilities P are computed anew from the rows' logsumexp (Dao et al. 2022, algorithm 4); delta
is the sum of grad * out over a row.

tiles       text of attention_tiles.cl.mako
local_m, local_n, item_m, item_v, vec, loop_m, tile_m, tile_n, pad      as in attention_register
depth       items of a row of q and k, rounded up to vec; depth_v those of v and grad
width       items of a row of q, rounded up to whole register tiles
dim, dim_v  the same, not rounded
seen, masked, philox       as in attention_register
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
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
void attention_register_grad_q(
    ${tensor("q")}
    ${tensor("k")}
    ${tensor("v")}
    ${tensor("grad")}
    ${tensor("grad_q", "")}
    __global const float *restrict lse, const long lse_start,
    __global const float *restrict delta, const long delta_start,
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
    TILE(grad_tile, ${tile_m * pitch_g});
    TILE(kv_tile, ${max(depth * tile_n, depth_v * tile_n, tile_n * width)});
    TILE(p_tile, ${tile_m * pitch_p});
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
    grad += grad_start + batch * grad_batch + head * grad_head;
    grad_q += grad_q_start + batch * grad_q_batch + head * grad_q_head;
    lse += lse_start + get_group_id(2) * (long)queries;
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
                    value = within(value, key0 + column, ${seen.first_key("row")}, ${seen.last_key("row")});
                    *(__local ${vf} *)(p_tile + (first + r) * ${pitch_p} + column) = exp(value - lse[row]);
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
% if philox:
                    value *= kept(seed, counter, (${vi})(row), key0 + column + LANES, keys, chance);
% endif
                    *(__local ${vf} *)(p) = *(__local const ${vf} *)(p) * (value - delta[row]) * scale;
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

#pragma unroll // sums are arrays, which stay in registers only where every index is constant
    for (int step = 0; step < ${loop_m}; ++step) {
#pragma unroll
        for (int i = 0; i < ${item_m}; ++i) {
            const int row = row0 + step * ${local_m * item_m} + block + i;
#pragma unroll
            for (int j = 0; j < ${outs}; ++j) {
                const int column = (j * ${local_n} + lane) * ${vec};
                store_part(grad_q + row * grad_q_row + column, outs[(step * ${item_m} + i) * ${outs} + j],
                           row < queries ? ${dim} - column : 0);
            }
        }
    }
}
