<%doc>
The gradients of attention's k and v, by rows of k: grad_v = P^T grad and grad_k = dS^T q.

As attention_register_grad_q, with keys as rows and queries as columns; the query heads that share a head
of k and v follow each other, so nothing is added up from outside.

tiles       text of attention_tiles.cl.mako
local_m, local_n, item_m, item_v, vec, loop_m, tile_m, tile_n, pad      as in attention_register
depth       items of a row of q and k, rounded up to vec; depth_v those of v and grad
width       items of a row of k, rounded up to whole register tiles; width_v those of v
dim, dim_v  the same, not rounded
seen, masked, philox       as in attention_register
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
    span = item_v * local_n * vec
    score_chunks, chunks, chunks_v = tile_n // span, width // span, width_v // span
    scores, outs, outs_v = score_chunks * item_v, chunks * item_v, chunks_v * item_v
    pitch_k, pitch_v, pitch_p = depth + pad, depth_v + pad, tile_n + pad
    def tensor(name, const="const "):
        return (f"__global {const}elem_t *restrict {name}, const long {name}_start, "
                f"const long {name}_batch, const long {name}_head, const long {name}_row,")
%>\
${tiles}

// values of ${vec} queries, the first at p; `other` beyond count
${vf} of_queries(__global const float *p, const int count, const float other)
{
    if (count >= ${vec}) {
        return vload${vec}(0, p);
    }
    float part[${vec}];
    for (int i = 0; i < ${vec}; ++i) {
        part[i] = i < count ? p[i] : other;
    }
    return vload${vec}(0, part);
}

__kernel __attribute__((reqd_work_group_size(${local_n}, ${local_m}, 1)))
void attention_register_grad_kv(
    ${tensor("q")}
    ${tensor("k")}
    ${tensor("v")}
    ${tensor("grad")}
    ${tensor("grad_k", "")}
    ${tensor("grad_v", "")}
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
    TILE(k_tile, ${tile_m * pitch_k});
    TILE(v_tile, ${tile_m * pitch_v});
    TILE(other, ${tile_n * max(depth, depth_v, width, width_v)});
    TILE(p_tile, ${tile_m * pitch_p});
    TILE(ds_tile, ${tile_m * pitch_p});
% if philox:
    const ulong seed = random[random_start];
% endif
    const int lane = get_local_id(0), block = get_local_id(1) * ${item_m};
    const int row0 = get_group_id(1) * ${tile_m};
    const int shared = heads / shared_by;
    const int batch = get_group_id(2) / shared, shared_head = get_group_id(2) % shared;
    k += k_start + batch * k_batch + shared_head * k_head;
    v += v_start + batch * v_batch + shared_head * v_head;
    grad_k += grad_k_start + batch * grad_k_batch + shared_head * grad_k_head;
    grad_v += grad_v_start + batch * grad_v_batch + shared_head * grad_v_head;
    load_rows(k_tile, ${pitch_k}, ${tile_m}, ${depth}, k + row0 * k_row, k_row, keys - row0, ${dim});
    load_rows(v_tile, ${pitch_v}, ${tile_m}, ${depth_v}, v + row0 * v_row, v_row, keys - row0, ${dim_v});

    ${vf} k_sums[${loop_m * item_m * outs}], v_sums[${loop_m * item_m * outs_v}];
    for (int i = 0; i < ${loop_m * item_m * outs}; ++i) {
        k_sums[i] = 0.0f;
    }
    for (int i = 0; i < ${loop_m * item_m * outs_v}; ++i) {
        v_sums[i] = 0.0f;
    }
    for (int head = shared_head * shared_by; head < (shared_head + 1) * shared_by; ++head) {
        const long line = batch * heads + head;
        __global const elem_t *q_rows = q + q_start + batch * q_batch + head * q_head;
        __global const elem_t *grad_rows = grad + grad_start + batch * grad_batch + head * grad_head;
        __global const float *ends_of = lse + lse_start + line * queries;
        __global const float *deltas = delta + delta_start + line * queries;
% if philox:
        const ulong counter = random[random_start + 1] + line * (ulong)queries * keys;
% endif
        const int last = ${seen.last_query(f"(row0 + {tile_m - 1})")};
        for (int query0 = ${seen.first_query("row0", tile_n)}; query0 < last; query0 += ${tile_n}) {
            const int left = queries - query0;
            barrier(CLK_LOCAL_MEM_FENCE);
            load_columns(other, ${tile_n}, ${depth}, q_rows + query0 * q_row, q_row, left, ${dim});
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int step = 0; step < ${loop_m}; ++step) {
                const int first = step * ${local_m * item_m} + block;
                ${vf} score[${item_m * scores}];
                for (int i = 0; i < ${item_m * scores}; ++i) {
                    score[i] = 0.0f;
                }
% for c in range(score_chunks):
                product(score + ${c * item_v}, ${scores}, k_tile + first * ${pitch_k}, ${pitch_k},
                        other + ${c * span} + lane * ${vec}, ${tile_n}, ${depth});
% endfor
                for (int s = 0; s < ${scores}; ++s) {
                    const int column = (s * ${local_n} + lane) * ${vec};
                    const ${vf} ends = of_queries(ends_of + query0 + column, left - column, INFINITY);
                    for (int r = 0; r < ${item_m}; ++r) {
                        ${vf} value = score[r * ${scores} + s] * scale;
% if masked:
                        value += mask_of(
                            mask + mask_start + batch * mask_batch + head * mask_head
                                + (query0 + column) * mask_row
                                + min(row0 + first + r, keys - 1) * mask_column,
                            mask_row, left - column);
% endif
% if seen.is_limited:
                        value = within(value, query0 + column, ${seen.first_query("(row0 + first + r)")},
                                       ${seen.last_query("(row0 + first + r)")});
% endif
                        *(__local ${vf} *)(p_tile + (first + r) * ${pitch_p} + column) = exp(value - ends);
                    }
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            load_columns(other, ${tile_n}, ${depth_v}, grad_rows + query0 * grad_row, grad_row, left, ${dim_v});
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int step = 0; step < ${loop_m}; ++step) {
                const int first = step * ${local_m * item_m} + block;
                ${vf} score[${item_m * scores}];
                for (int i = 0; i < ${item_m * scores}; ++i) {
                    score[i] = 0.0f;
                }
% for c in range(score_chunks):
                product(score + ${c * item_v}, ${scores}, v_tile + first * ${pitch_v}, ${pitch_v},
                        other + ${c * span} + lane * ${vec}, ${tile_n}, ${depth_v});
% endfor
                for (int s = 0; s < ${scores}; ++s) {
                    const int column = (s * ${local_n} + lane) * ${vec};
                    const ${vf} mean = of_queries(deltas + query0 + column, left - column, 0.0f);
                    for (int r = 0; r < ${item_m}; ++r) {
                        const int at = (first + r) * ${pitch_p} + column;
                        const ${vf} p = *(__local const ${vf} *)(p_tile + at);
                        ${vf} value = score[r * ${scores} + s];
% if philox:
                        const ${vf} factor = kept(seed, counter, query0 + column + LANES, (${vi})(row0 + first + r), keys, chance);
                        value *= factor;
                        *(__local ${vf} *)(p_tile + at) = p * factor;
% endif
                        *(__local ${vf} *)(ds_tile + at) = p * (value - mean) * scale;
                    }
                }
            }
% for name, source, pitch, dimension, sums, count, probabilities in (("v", "grad", width_v, dim_v, "v_sums", chunks_v, "p_tile"), ("k", "q", width, dim, "k_sums", chunks, "ds_tile")):
            barrier(CLK_LOCAL_MEM_FENCE);
            load_rows(other, ${pitch}, ${tile_n}, ${pitch}, ${source}_rows + query0 * ${source}_row,
                      ${source}_row, left, ${dimension});
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int step = 0; step < ${loop_m}; ++step) {
                const int first = step * ${local_m * item_m} + block;
% for c in range(count):
                product(${sums} + step * ${item_m * count * item_v} + ${c * item_v}, ${count * item_v},
                        ${probabilities} + first * ${pitch_p}, ${pitch_p},
                        other + ${c * span} + lane * ${vec}, ${pitch}, ${tile_n});
% endfor
            }
% endfor
        }
    }

#pragma unroll // sums are arrays, which stay in registers only where every index is constant
    for (int step = 0; step < ${loop_m}; ++step) {
#pragma unroll
        for (int i = 0; i < ${item_m}; ++i) {
            const int row = row0 + step * ${local_m * item_m} + block + i;
% for name, sums, count, dimension in (("k", "k_sums", outs, dim), ("v", "v_sums", outs_v, dim_v)):
#pragma unroll
            for (int j = 0; j < ${count}; ++j) {
                const int column = (j * ${local_n} + lane) * ${vec};
                store_part(grad_${name} + row * grad_${name}_row + column,
                           ${sums}[(step * ${item_m} + i) * ${count} + j],
                           row < keys ? ${dimension} - column : 0);
            }
% endfor
        }
    }
}
