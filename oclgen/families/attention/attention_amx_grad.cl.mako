<%doc>
Gradients of attention in 16 bits in the tile registers of AMX.

A work-item has a head of k and v, or a part of its keys or of the queries that share it. It takes
the queries chunk by chunk, and for each chunk the keys 32 at a time: a stripe. As in attention_amx,
scores are computed turned, a row of a tile for each key and a column for each query, and so are the
products of `grad` and values. Softmax makes probabilities and slopes of them, as words of two 16-bit
numbers that are, as they lie, operands of three more products:

p, ds       a row for each key, words of two queries 16 apart: multiplied with `grad` and q, whose
            rows are woven in the same way, they give the gradients of v and k
slopes      a column for each query, words of two neighbouring keys: turned keys multiplied with them
            give the gradient of q, turned

Sums of a chunk's queries stay with the work-item; those of keys are in memory, one tile behind the
other, and are written when all queries are done. Rows past the last one are zeros.

preamble        typedef of elem_t and the macros LOADn and STOREn
registers       the tile registers
turn, scores, power     texts of functions, of transpose(rows), too
philox, kept    texts of dropout, or empty
direction       bwd_q, bwd_kv or bwd
chunk           queries, a multiple of 32
block           keys whose slopes are held, a multiple of 32
dim, dim_v      items of a row of q and k, and of v
steps, steps_v  steps of 32 items of a row of each
tiles, tiles_v  tiles of 16 items of a row of each
seen            which keys a query sees: see `Seen`
masked          there is an additive mask
</%doc>
<%
    of_queries, of_keys = direction != "bwd_kv", direction != "bwd_q"
    written = ("grad_q",) * of_queries + ("grad_k", "grad_v") * of_keys
    # name of the sums, tiles of a row, items of a row, factors and rows that they are sums of
    of_keys_sums = (("sum_k", tiles, dim, "ds", "woven_q", "grad_k"), ("sum_v", tiles_v, dim_v, "p", "woven_grad", "grad_v"))
    def tensor(name, kind):
        return (f"__global {kind} *restrict {name}, const long {name}_start, "
                f"const long {name}_batch, const long {name}_head, const long {name}_row,")
    def pairs_of(tiles):
        return [range(first, min(first + 2, tiles)) for first in range(0, tiles, 2)]
    sizes = sorted({dim, dim_v})
    aligned = "__attribute__((aligned(64)))"
%>\
${preamble}
${registers}
${turn}
${scores}
${power}
#define LOG2_E 1.44269504f
% if philox:
${philox}
${kept}
% endif

% for size in sizes:
<% width = -(-size // 32) * 32 %>\
// 32 rows of ${size} items, of which `count` are there, as rows of ${width}; zeros behind both
void fill_rows_of_${size}(ushort *to, __global const ushort *from, const long row, const int count)
{
    for (int r = 0; r < 32; ++r, to += ${width}, from += row) {
        const bool is_there = r < count;
% for c in range(0, size // 16 * 16, 16):
        vstore16(is_there ? vload16(0, from + ${c}) : (ushort16)(0), 0, to + ${c});
% endfor
% if size % 16:
        for (int c = 0; c < 16; ++c) {
            to[${size // 16 * 16} + c] = is_there && c < ${size % 16} ? from[${size // 16 * 16} + c] : 0;
        }
% endif
% if 0 < size % 32 <= 16:
        vstore16((ushort16)(0), 0, to + ${width - 16});
% endif
    }
}

% endfor
// two blocks of 16 rows, as tiles of a step each whose words of two items stand in columns: to[block][step]
void turn_pairs(float *to, const ushort *rows, const int steps)
{
    for (int tile = 0; tile < 2 * steps; ++tile, to += 256) {
        const ushort *from = rows + tile / steps * steps * 512 + tile % steps * 32;
        float16 words[16];
        for (int r = 0; r < 16; ++r) {
            words[r] = vload16(0, (const float *)(from + r * steps * 32));
        }
        transpose(words);
        for (int r = 0; r < 16; ++r) {
            vstore16(words[r], r, to);
        }
    }
}

// words of rows r and r + 16, as tiles of 16 items each
void weave(float *to, const ushort *rows, const int steps, const int tiles)
{
    for (int tile = 0; tile < tiles; ++tile, rows += 16) {
        for (int r = 0; r < 16; ++r, to += 16) {
            const uint16 low = convert_uint16(vload16(0, rows + r * steps * 32));
            const uint16 high = convert_uint16(vload16(0, rows + (r + 16) * steps * 32));
            vstore16(as_float16(low | high << 16), 0, to);
        }
    }
}

<%def name="store_row(to, tiles, size, factor)">\
            // a row of ${size} items from the same row of each tile, ${tiles} being that of the first one
% for c in range(0, size // 16 * 16, 16):
            STORE16(vload16(${c}, ${tiles})${factor}, ${to} + ${c});
% endfor
% if size % 16:
            for (int c = 0; c < ${size % 16}; ++c) {
                STORE1(${tiles}[${size // 16 * 256} + c]${factor}, ${to} + ${size // 16 * 16} + c);
            }
% endif
</%def>\
<%def name="products(to, rows, pairs, steps)">\
% for t in range(4):
                    TILE_ZERO(${t});
% endfor
% for s in range(steps):
% for i in (0, 1):
                    TILE_LOAD(${4 + i}, ${rows} + ${(16 * i * steps + s) * 32}, ${steps * 64});
                    TILE_LOAD(${6 + i}, ${pairs} + (step * ${2 * steps} + ${i * steps + s}) * 256, 64);
% endfor
% for i in (0, 1):
% for j in (0, 1):
                    TILE_DOT(${2 * j + i}, ${4 + i}, ${6 + j});
% endfor
% endfor
% endfor
% for t in range(4):
                    TILE_STORE(${t}, ${to} + ${256 * t}, 64);
% endfor
</%def>\
<%def name="add(is_new, rows, columns, at, loop, left, right)">\
                if (${is_new}) {
% for i in range(rows):
% for j in range(columns):
                    TILE_ZERO(${2 * i + j});
% endfor
% endfor
                } else {
% for i in range(rows):
% for j in range(columns):
                    TILE_LOAD(${2 * i + j}, ${at(i, j)}, 64);
% endfor
% endfor
                }
                {
                    ${loop} {
% for i in range(rows):
                        TILE_LOAD(${4 + i}, ${left(i)}, 64);
% endfor
% for j in range(columns):
                        TILE_LOAD(${6 + j}, ${right(j)}, 64);
% endfor
% for i in range(rows):
% for j in range(columns):
                        TILE_DOT(${2 * i + j}, ${4 + i}, ${6 + j});
% endfor
% endfor
                    }
% for i in range(rows):
% for j in range(columns):
                    TILE_STORE(${2 * i + j}, ${at(i, j)}, 64);
% endfor
% endfor
                }
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_amx_grad(
% for name in ("q", "k", "v", "grad", *written):
    ${tensor(name, "elem_t" if name in written else "const ushort")}
% endfor
    __global const float *restrict lse, const long lse_start,
    __global const float *restrict delta, const long delta_start,
% if masked:
    ${tensor("mask", "const elem_t")} const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys,
% if philox:
    const float chance, __global const long *restrict random, const long random_start,
% endif
    const float scale${"," if of_keys else ")"}
% if of_keys:
    __global float *restrict sum_k, const long sum_k_start,
    __global float *restrict sum_v, const long sum_v_start)
% endif
{
    const int shared = heads / shared_by;
    const int batch = (int)get_global_id(1) / shared, shared_head = (int)get_global_id(1) % shared;
% for name in ("k", "v", *written[-2:]) if of_keys else ("k", "v"):
    ${name} += ${name}_start + batch * ${name}_batch + shared_head * ${name}_head;
% endfor
% for name in ("q", "grad", *written[:of_queries]):
    ${name} += ${name}_start + batch * ${name}_batch + shared_head * shared_by * ${name}_head;
% endfor
    const long line0 = (batch * heads + shared_head * shared_by) * (long)queries;
    lse += lse_start + line0;
    delta += delta_start + line0;
% if masked:
    mask += mask_start + batch * mask_batch + shared_head * shared_by * mask_head;
% endif
% if philox:
    const ulong seed = random[random_start];
% endif
    const int chunks = (queries + ${chunk - 1}) / ${chunk};
% if direction == "bwd_q":
    const int first_turn = (int)get_global_id(0), last_turn = first_turn + 1;
% else:
    const int first_turn = 0, last_turn = shared_by * chunks;
% endif
% if direction == "bwd_kv":
    const int own_first = (int)get_global_id(0) * ${block}, own_last = min(own_first + ${block}, keys);
% else:
    const int own_first = 0, own_last = keys;
% endif
% if of_keys:
    const long tile0 = (get_global_id(1) * ((keys + 31) / 32) + own_first / 32) * 2;
% for name, count, *_ in of_keys_sums:
    ${name} += ${name}_start + tile0 * ${count * 256};
% endfor
% endif

    // of a chunk of queries
    float pairs_q[${chunk * steps * 16}] ${aligned}, pairs_grad[${chunk * steps_v * 16}] ${aligned};
% if of_keys:
    float woven_q[${chunk * tiles * 8}] ${aligned}, woven_grad[${chunk * tiles_v * 8}] ${aligned};
    float p[${chunk * 16}] ${aligned}, ds[${chunk * 16}] ${aligned};
% endif
% if of_queries:
    float slopes[${chunk * block // 2}] ${aligned}, sum_q[${chunk * tiles * 16}] ${aligned};
    ushort turned_k[${block * tiles * 16}] ${aligned};
% endif
    float ends[${chunk}], means[${chunk}];
    ushort rows[${1024 * max(steps, steps_v)}] ${aligned};
    // of a stripe of keys
    ushort rows_k[${1024 * steps}] ${aligned}, rows_v[${1024 * steps_v}] ${aligned};
    float scores[1024] ${aligned}, dots[1024] ${aligned};
    const float factor = scale * LOG2_E;
    TILE_REGISTERS;
    SET_TILES(16, 64, 4, 6);
    for (int turn = first_turn; turn < last_turn; ++turn) {
        const int head = turn / chunks, query0 = turn % chunks * ${chunk};
        const int here = min(${chunk}, queries - query0), all_steps = (here + 31) / 32;
        for (int step = 0; step < all_steps; ++step) {
            const int query = query0 + 32 * step;
% for name, size, count, whole in (("q", "dim", steps, tiles), ("grad", "dim_v", steps_v, tiles_v)):
            fill_rows_of_${dim if name == "q" else dim_v}(rows, ${name} + head * ${name}_head + query * ${name}_row, ${name}_row, queries - query);
            turn_pairs(pairs_${name} + step * ${count * 512}, rows, ${count});
% if of_keys:
            weave(woven_${name} + step * ${whole * 256}, rows, ${count}, ${whole});
% endif
% endfor
        }
        for (int i = 0; i < 32 * all_steps; ++i) {
            const long line = head * (long)queries + query0 + i;
            ends[i] = i < here ? lse[line] * LOG2_E : INFINITY;
            means[i] = i < here ? delta[line] : 0.0f;
        }
% if philox:
        const ulong16 counters = (ulong)random[random_start + 1] + (ulong)(line0 + head * (long)queries) * (ulong)keys;
% endif

        const int last_query = query0 + here - 1;
        const int first = max(own_first, ${seen.first_key("query0", 32)});
        const int last = min(own_last, ${seen.last_key("last_query")});
% if of_keys and seen.is_limited:
        if (turn == first_turn) {
            // keys that the first chunk adds nothing to
            for (int key0 = own_first; key0 < own_last; key0 += 32) {
                if (key0 < first || key0 >= last) {
% for name, count, *_ in of_keys_sums:
                    for (int i = 0; i < ${count * 32}; ++i) {
                        vstore16((float16)(0.0f), (key0 - own_first) * ${count} + i, ${name});
                    }
% endfor
                }
            }
        }
% endif
        for (int block0 = first; block0 < last; block0 += ${block}) {
            for (int key0 = block0; key0 < min(block0 + ${block}, last); key0 += 32) {
                const int stripe = (key0 - block0) / 32, last_key = min(key0 + 31, keys - 1);
                fill_rows_of_${dim}(rows_k, k + key0 * k_row, k_row, keys - key0);
                fill_rows_of_${dim_v}(rows_v, v + key0 * v_row, v_row, keys - key0);
% if of_queries:
                turn_values(turned_k + stripe * ${tiles * 512}, rows_k, ${steps * 32}, ${tiles * 16}, 32);
% endif
                // steps with queries that see a key, and keys that all queries of a step see
                const int first_step = max(0, ${seen.first_query("key0")} - query0) / 32;
                const int last_step = min(all_steps, (${seen.last_query("last_key")} - query0 + 31) / 32);
                for (int step = first_step; step < last_step; ++step) {
${products("scores", "rows_k", "pairs_q", steps)}\
${products("dots", "rows_v", "pairs_grad", steps_v)}\
                    const int low = query0 + 32 * step, high = low + 31;
                    const bool is_plain = ${"false" if masked else f"key0 + 32 <= keys && key0 >= {seen.first_key('high')} && key0 + 32 <= {seen.last_key('low')}"};
                    const float times = is_plain ? factor : 1.0f;
% for j in (0, 1):
% if seen.is_limited or philox or masked:
                    const int16 query${j} = low + ${16 * j} + (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
% endif
                    if (!is_plain) {
% if masked:
                        long mask_rows[16];
                        for (int r = 0; r < 16; ++r) {
                            mask_rows[r] = head * mask_head + min(low + ${16 * j} + r, queries - 1) * mask_row;
                        }
% endif
                        limit_scores(scores + ${512 * j}, factor, key0, keys${f", query{j}" if seen.is_limited else ""}${", mask, mask_rows, mask_column" if masked else ""});
                    }
                    const float16 ends${j} = vload16(2 * step + ${j}, ends), mean${j} = vload16(2 * step + ${j}, means);
% endfor
                    for (int n = 0; n < 32; n += 2) {
% for i in (0, 1):
% for j in (0, 1):
                        float16 p${i}${j} = power_of_two(vload16(n + ${32 * j + i}, scores) * times - ends${j});
                        float16 ds${i}${j} = vload16(n + ${32 * j + i}, dots);
% if philox:
                        const float16 kept${i}${j} = kept(seed, counters, query${j}, (int16)(key0 + n + ${i}), keys, chance);
                        ds${i}${j} = p${i}${j} * (ds${i}${j} * kept${i}${j} - mean${j});
                        p${i}${j} *= kept${i}${j};
% else:
                        ds${i}${j} = p${i}${j} * (ds${i}${j} - mean${j});
% endif
% endfor
% endfor
% if of_keys:
% for i in (0, 1):
                        vstore16(words_of(p${i}0, p${i}1), step * 32 + n + ${i}, p);
                        vstore16(words_of(ds${i}0, ds${i}1), step * 32 + n + ${i}, ds);
% endfor
% endif
% if of_queries:
% for j in (0, 1):
                        vstore16(words_of(ds0${j}, ds1${j}), n / 2, slopes + ((2 * step + ${j}) * ${block // 32} + stripe) * 256);
% endfor
% endif
                    }
                }
% if of_keys:
                const int tile = (key0 - own_first) / 16;
% for name, count, _, factors, others, _ in of_keys_sums:
% for columns in pairs_of(count):
${add("turn == first_turn", 2, len(columns), lambda i, j: f"{name} + ((tile + {i}) * {count} + {columns[j]}) * 256",
      "for (int step = first_step; step < last_step; ++step)",
      lambda i: f"{factors} + (2 * step + {i}) * 256", lambda j: f"{others} + (step * {count} + {columns[j]}) * 256")}\
% endfor
% endfor
% endif
            }
% if of_queries:
            for (int step = 0; step < all_steps; ++step) {
                const int low = query0 + 32 * step, high = min(low + 31, last_query);
                // stripes with keys that these queries see
                const int first_stripe = max(0, ${seen.first_key("low")} - block0) / 32;
                const int last_stripe = (min(min(block0 + ${block}, last), ${seen.last_key("high")}) - block0 + 31) / 32;
% for rows in pairs_of(tiles):
${add("block0 == first", len(rows), 2, lambda i, j: f"sum_q + ((2 * step + {j}) * {tiles} + {rows[i]}) * 256",
      "for (int stripe = first_stripe; stripe < last_stripe; ++stripe)",
      lambda i: f"turned_k + (stripe * {tiles} + {rows[i]}) * 512",
      lambda j: f"slopes + ((2 * step + {j}) * {block // 32} + stripe) * 256")}\
% endfor
            }
% endif
        }
% if of_queries:
        for (int tile = 0; tile < all_steps * ${2 * tiles}; ++tile) {
            float16 turned[16];
            for (int i = 0; i < 16; ++i) {
                turned[i] = vload16(tile * 16 + i, sum_q);
            }
            transpose(turned);
            for (int i = 0; i < 16; ++i) {
                vstore16(turned[i], tile * 16 + i, sum_q);
            }
        }
        for (int r = 0; r < here; ++r) {
            const float *tile = sum_q + r / 16 * ${tiles * 256} + r % 16 * 16;
            __global elem_t *to = grad_q + head * grad_q_head + (query0 + r) * grad_q_row;
${store_row("to", "tile", dim, " * scale")}\
        }
% endif
    }
    TILES_DONE;
% if of_keys:

    for (int r = 0; r < own_last - own_first; ++r) {
% for name, count, size, _, _, to in of_keys_sums:
        {
            __global const float *tile = ${name} + r / 16 * ${count * 256} + r % 16 * 16;
            __global elem_t *to = ${to} + (own_first + r) * ${to}_row;
${store_row("to", "tile", size, " * scale" if to == "grad_k" else "")}\
        }
% endfor
    }
% endif
}
