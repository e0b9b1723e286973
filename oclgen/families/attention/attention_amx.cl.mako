<%doc>
Forward attention in 16 bits in the tile registers of AMX.

A work-item has blocks of 16 rows: queries of the heads that share a head of k and v. It turns them
once into pairs of items. A product of keys with them is a tile of scores with a key in every row and
a query in every column, so that vectors of scores have a query in each lane. Of a chunk of keys it
finds all scores first, and their maxima; then the powers, as words of two neighbouring keys each,
which take the place of the scores; and multiplies the turned values by them. Rows past the last one
are the last one again.

preamble        typedef of elem_t and the macros LOADn and STOREn
registers       the tile registers
turn, scores, power     texts of functions, of transpose(rows), too
philox, kept    texts of dropout, or empty
vectors         blocks of a work-item
pack            keys and values come packed; else keys are read as they lie, and values turned by each
                work-item
chunk           keys whose scores it holds, a multiple of 32
dim, dim_v      items of a row of q and k, and of v
steps, tiles_v  tiles of a row of each
seen            which keys a query sees: see `Seen`
masked          there is an additive mask
</%doc>
<%
    height, places = 16 * vectors, range(vectors)
    at_once = 4 // vectors
    tiles_at_once = [range(first, min(first + at_once, tiles_v)) for first in range(0, tiles_v, at_once)]
%>\
${preamble}
${registers}
${turn}
${scores}
${power}
#define LOG2_E 1.44269504f

// the highest of 32 scores times a factor, and of another one
float16 highest(float16 most, const float *scores, const float factor)
{
    for (int i = 0; i < 32; ++i) {
        const float16 value = vload16(i, scores) * factor;
        most = select(most, value, value > most);  // one instruction, which fmax is not
    }
    return most;
}
% if philox:
${philox}
${kept}
% endif

<%def name="add_scores(keys, row, tile, step)">\
% for s in range(steps):
% for j in places:
                TILE_LOAD(${6 + j}, pairs + ${(s * vectors + j) * 256}, 64);
% endfor
% for i in (0, 1):
                TILE_LOAD(${4 + i}, ${keys} + ${f"{tile} + {s * step}" if i else s * step}, ${row});
% for j in places:
                TILE_DOT(${i * vectors + j}, ${4 + i}, ${6 + j});
% endfor
% endfor
% endfor
</%def>\
<%def name="add_values(tiles)">\
% for i, t in enumerate(tiles):
            TILE_LOAD(${4 + i % 2}, values + ${(t if pack else i) * 512}, 64);
% for j in places:
            TILE_DOT(${i * vectors + j}, ${4 + i % 2}, ${6 + j});
% endfor
% endfor
</%def>\
<%def name="each_sum(call, tiles)">\
% for i, t in enumerate(tiles):
% for j in places:
        ${call}(${i * vectors + j}, sums + ${(j * tiles_v + t) * 256}, 64);
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_amx(
% for name in ("q", "k", "v", "out"):
    __global ${"elem_t" if name == "out" else "const ushort"} *restrict ${name}, const long ${name}_start,
    const long ${name}_batch, const long ${name}_head, const long ${name}_row,
% endfor
    __global float *restrict lse, const long lse_start,
% if masked:
    __global const elem_t *restrict mask, const long mask_start, const long mask_batch,
    const long mask_head, const long mask_row, const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys,
% if philox:
    const float chance, __global const long *restrict random, const long random_start,
% endif
    const float scale${"," if pack else ")"}
% if pack:
    __global const ushort *restrict packed_k, const long packed_k_start,
    __global const ushort *restrict packed_v, const long packed_v_start)
% endif
{
    const int shared = heads / shared_by;
    const int batch = (int)get_global_id(1) / shared, shared_head = (int)get_global_id(1) % shared;
% if pack:
    const int groups = (keys + 31) / 32;
    packed_k += packed_k_start + get_global_id(1) * groups * ${steps * 1024};
    packed_v += packed_v_start + get_global_id(1) * groups * ${tiles_v * 512};
% else:
    k += k_start + batch * k_batch + shared_head * k_head;
    v += v_start + batch * v_batch + shared_head * v_head;
    // keys with zeros behind the last one and the last item of a row
    ushort padded_k[${steps * 1024}] __attribute__((aligned(64)));
    ushort values[${at_once * 512}] __attribute__((aligned(64)));
% endif
    q += q_start + batch * q_batch + shared_head * shared_by * q_head;
    out += out_start + batch * out_batch + shared_head * shared_by * out_head;
    const long line0 = (batch * heads + shared_head * shared_by) * (long)queries;
    lse += lse_start + line0;
% if masked:
    mask += mask_start + batch * mask_batch + shared_head * shared_by * mask_head;
    long mask_rows[${height}];
% endif
% if philox:
    const ulong seed = random[random_start];
% endif

    float pairs[${steps * vectors * 256}] __attribute__((aligned(64)));
    float scores[${chunk * height}] __attribute__((aligned(64)));
    float sums[${tiles_v * vectors * 256}] __attribute__((aligned(64)));
    const int row0 = (int)get_global_id(0) * ${height}, rows = queries * shared_by;
    int own_query[${height}], own_head[${height}];
    // lowest and highest query
    int low = queries, high = 0;
    for (int r = 0; r < ${height}; ++r) {
        const int row = min(row0 + r, rows - 1);
        own_query[r] = row % queries;
        own_head[r] = row / queries;
        low = min(low, own_query[r]);
        high = max(high, own_query[r]);
% if masked:
        mask_rows[r] = own_head[r] * mask_head + own_query[r] * mask_row;
% endif
    }
    for (int place = 0; place < ${vectors}; ++place) {
        for (int step = 0; step < ${steps}; ++step) {
            float16 turned[16];
            for (int r = 0; r < 16; ++r) {
                __global const ushort *from = q + own_head[16 * place + r] * q_head + own_query[16 * place + r] * q_row + step * 32;
% if dim % 32:
                ushort part[32];
                for (int c = 0; c < 32; ++c) {
                    part[c] = step * 32 + c < ${dim} ? from[c] : 0;
                }
                turned[r] = (float16)(as_float8(vload16(0, part)), as_float8(vload16(1, part)));
% else:
                turned[r] = (float16)(as_float8(vload16(0, from)), as_float8(vload16(1, from)));
% endif
            }
            transpose(turned);
            for (int i = 0; i < 16; ++i) {
                vstore16(turned[i], (step * ${vectors} + place) * 16 + i, pairs);
            }
        }
    }

    float16 ${", ".join(f"top{j} = -INFINITY, sum{j} = 0.0f" for j in places)};
% if seen.is_limited or philox:
% for j in places:
    const int16 query${j} = vload16(${j}, own_query);
% endfor
% endif
% if philox:
% for j in places:
    ulong16 counters${j};
    {
        ulong part[16];
        for (int r = 0; r < 16; ++r) {
            part[r] = random[random_start + 1] + (line0 + own_head[${16 * j} + r] * (long)queries) * keys;
        }
        counters${j} = vload16(0, part);
    }
% endfor
% endif
    const int first = ${seen.first_key("low", 32)}, last = ${seen.last_key("high")};
    // keys that all rows see
    const int all_first = ${seen.first_key("high")}, all_last = ${seen.last_key("low")};
    const float factor = scale * LOG2_E;
    TILE_REGISTERS;
    SET_TILES(16, 64, 4, 6);
    for (int chunk0 = first; chunk0 < last; chunk0 += ${chunk}) {
        const int count = min(${chunk}, (last - chunk0 + 31) / 32 * 32);
        float16 ${", ".join(f"most{j} = top{j}" for j in places)};
        for (int m = 0; m < count; m += 32) {
            const int key0 = chunk0 + m;
% for i in range(2 * vectors):
            TILE_ZERO(${i});
% endfor
% if pack:
${add_scores("packed_k + key0 * (long)" + str(steps * 32), 64, steps * 512, 512)}\
% else:
% if dim % 32 == 0:
            if (key0 + 32 <= keys) {
${add_scores("k + key0 * k_row", "2 * k_row", "16 * k_row", 32)}\
            } else
% endif
            {
                for (int i = 0; i < 32; ++i) {
                    const bool is_there = key0 + i < keys;
                    __global const ushort *from = k + (key0 + i) * k_row;
                    ushort *to = padded_k + i * ${steps * 32};
% if dim >= 16:
                    for (int c = 0; c < ${dim // 16 * 16}; c += 16) {
                        vstore16(is_there ? vload16(0, from + c) : (ushort16)(0), 0, to + c);
                    }
% endif
% if dim % 32:
                    for (int c = ${dim // 16 * 16}; c < ${steps * 32}; ++c) {
                        to[c] = is_there && c < ${dim} ? from[c] : 0;
                    }
% endif
                }
${add_scores("padded_k", steps * 64, steps * 512, 32)}\
            }
% endif
% for j in places:
            float *scores${j} = scores + ${j * chunk * 16} + m * 16;
% for i in (0, 1):
            TILE_STORE(${i * vectors + j}, scores${j} + ${256 * i}, 64);
% endfor
% endfor
            const bool is_plain = ${"false" if masked else "key0 >= all_first && key0 + 32 <= all_last"};
% for j in places:
            if (!is_plain) {
                limit_scores(scores${j}, factor, key0, keys${f", query{j}" if seen.is_limited else ""}${f", mask, mask_rows + {16 * j}, mask_column" if masked else ""});
            }
            most${j} = highest(most${j}, scores${j}, is_plain ? factor : 1.0f);
% endfor
        }
        // where all is masked, shift by nothing: exp(-inf) is 0 and stays 0
% for j in places:
        const float16 shift${j} = select(most${j}, (float16)(0.0f), most${j} == -INFINITY);
        const float16 shrink${j} = power_of_two(top${j} - shift${j});
        top${j} = most${j};
        sum${j} *= shrink${j};
% endfor
        if (chunk0 > first) {
% for j in places:
            for (int i = 0; i < ${tiles_v * 16}; ++i) {
                vstore16(vload16(i + ${j * tiles_v * 16}, sums) * shrink${j}, i + ${j * tiles_v * 16}, sums);
            }
% endfor
        }
% for tiles in tiles_at_once:
        if (chunk0 > first) {
${each_sum("TILE_LOAD", tiles)}\
        } else {
% for i in range(len(tiles) * vectors):
            TILE_ZERO(${i});
% endfor
        }
        for (int m = 0; m < count; m += 32) {
% if tiles.start == 0:
            const bool is_plain = ${"false" if masked else "chunk0 + m >= all_first && chunk0 + m + 32 <= all_last"};
% for j in places:
            {
                float *from = scores + ${j * chunk * 16} + m * 16, *to = scores + ${j * chunk * 16} + m * 8;
                const float times = is_plain ? factor : 1.0f;
                for (int i = 0; i < 16; ++i) {
                    float16 low = power_of_two(vload16(2 * i, from) * times - shift${j});
                    float16 high = power_of_two(vload16(2 * i + 1, from) * times - shift${j});
                    sum${j} += low + high;
% if philox:
                    low *= kept(seed, counters${j}, query${j}, (int16)(chunk0 + m + 2 * i), keys, chance);
                    high *= kept(seed, counters${j}, query${j}, (int16)(chunk0 + m + 2 * i + 1), keys, chance);
% endif
                    vstore16(words_of(low, high), i, to);
                }
            }
% endfor
% endif
% if pack:
            __global const ushort *values = packed_v + (chunk0 + m) * (long)${tiles_v * 16};
% else:
            turn_values(values, v + (chunk0 + m) * v_row + ${16 * tiles.start}, v_row, ${min(16 * tiles.stop, dim_v) - 16 * tiles.start}, keys - chunk0 - m);
% endif
% for j in places:
            TILE_LOAD(${6 + j}, scores + ${j * chunk * 16} + m * 8, 64);
% endfor
${add_values(tiles)}\
        }
${each_sum("TILE_STORE", tiles)}\
% endfor
    }
    TILES_DONE;

% for j in places:
    {
        const float16 factor = select(1.0f / sum${j}, (float16)(0.0f), sum${j} == 0.0f);
        // +inf where all is masked: the backward pass then finds probabilities of 0
        const float16 ends = select(top${j} / LOG2_E + log(sum${j}), (float16)(INFINITY), sum${j} == 0.0f);
        const int count = min(16, rows - row0 - ${16 * j});
        float of_rows[16];
        vstore16(ends, 0, of_rows);
        for (int r = 0; r < count; ++r) {
            lse[row0 + ${16 * j} + r] = of_rows[r];
        }
        for (int c = 0; c < ${dim_v}; c += 16) {
            float16 turned[16];
            for (int i = 0; i < 16; ++i) {
                turned[i] = vload16(c + i + ${j * tiles_v * 16}, sums) * factor;
            }
            transpose(turned);
            for (int r = 0; r < count; ++r) {
                __global elem_t *to = out + own_head[${16 * j} + r] * out_head + own_query[${16 * j} + r] * out_row + c;
% if dim_v % 16:
                if (c + 16 > ${dim_v}) {
                    vstore16(turned[r], 0, of_rows);
                    for (int i = 0; i < ${dim_v % 16}; ++i) {
                        STORE1(of_rows[i], to + i);
                    }
                    continue;
                }
% endif
                STORE16(turned[r], to);
            }
        }
    }
% endfor
}
