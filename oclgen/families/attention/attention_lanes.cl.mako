<%doc>
Attention on processors with a row in every lane, forward and backward, in one pass.

A work-item owns rows: queries, or keys where gradients of k and v are asked for. It turns them once,
so that a vector holds one item of `vec` rows, and meets the other rows tile by tile. These stay as
they lie: each of their items is multiplied with vectors of own rows. So nothing else is turned,
and what softmax finds for a row it finds for a vector of rows. Results are sums of other rows times
factors, whose vectors hold items: no lane is empty there, and nothing is turned back.

tiles       text of attention_lanes_tiles.cl.mako
kernel      its name
direction   fwd, bwd_q, bwd_kv or bwd
vec         rows of a vector of scores
fold        items of a row that lie side by side in a vector that scores are summed in: few rows then fill it
wide        its lanes, and those of vectors of items
vectors     vectors of a block of own rows, at most: blocks are as even as can be
sums        other rows whose scores are in registers at once, for a block
rows_at_once  rows of results whose sums are there, and of the last ones
tile        other rows in local memory: a multiple of sums
blocks      blocks of a work-item, which share the tiles
place       where other rows are read: local, where tiles of them are copied to as fp32, or global, as they lie
dim, dim_v  items of a row of q and k, and of v
pitch_of    the same in whole vectors
seen        which keys a query sees: see `Seen`
joined      tiles go on from the queries of one head to those of the next one that shares k and v: all scores count
masked      there is an additive mask
philox      whether probabilities are dropped

Of all gradients at once (bwd) a work-item has all keys of a head, block by block. What they add to
the gradients of queries is a product of slopes with the keys as they lie, and is added up in `sums`
[batch, heads, queries and more, whole vectors of items], fp32, which is rounded at the end.
</%doc>
<%
    vf, vi, vl = (f"{name}{vec}" for name in ("float", "int", "ulong"))
    is_forward, is_whole = direction == "fwd", direction == "bwd"
    by_keys = direction in ("bwd_kv", "bwd")
    written = (("grad_q",) if direction in ("bwd_q", "bwd") else ()) + (("grad_k", "grad_v") if by_keys else ())
    height = vec * vectors
    # name of own rows, the others that they are multiplied with, items of a row
    pairs = (("k", "q", dim), ("v", "grad", dim_v)) if by_keys else (("q", "k", dim), ("grad", "v", dim_v))
    own = pairs[:1] if is_forward else pairs
    others = [(other, size) for _, other, size in pairs]
    # result, the others that it is a sum of, their factors, items of a row
    results = {
        "fwd": (("out", "v", "p", dim_v),),
        "bwd_q": (("grad_q", "k", "ds", dim),),
        "bwd_kv": (("grad_v", "grad", "p", dim_v), ("grad_k", "q", "ds", dim)),
    }["bwd_kv" if is_whole else direction]
    pitches = {other: pitch_of[size] for other, size in others}
    def at(other, row, item="0"):
        """The address of an item of another row, and what is between rows."""
        if place == "local":
            return f"(__local const float *)tile_{other} + {row} * {pitches[other]} + {item}, {pitches[other]}"
        head = f"head * {other}_head + " if by_keys else ""
        return f"{other} + {head}(other0 + {row}) * {other}_row + {item}, {other}_row"
    pitch = pitch_of[dim]
    def tensor(name, const="const "):
        return (f"__global {const}elem_t *restrict {name}, const long {name}_start, "
                f"const long {name}_batch, const long {name}_head, const long {name}_row,")
    def tile_of(name, size, lanes=vec):
        return f"__local float{lanes} {name}[{size}] __attribute__((aligned({4 * lanes})))"
%>\
${tiles}
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${kernel}(
    ${tensor("q")}
    ${tensor("k")}
    ${tensor("v")}
% if is_forward:
    ${tensor("out", "")}
    __global float *restrict lse, const long lse_start,
% else:
    ${tensor("grad")}
% for name in written:
    ${tensor(name, "")}
% endfor
    __global const float *restrict lse, const long lse_start,
    __global const float *restrict delta, const long delta_start,
% endif
% if masked:
    ${tensor("mask")} const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys,
% if philox:
    const float chance, __global const long *restrict random, const long random_start,
% endif
    const float scale${"," if is_whole else ")"}
% if is_whole:
    __global float *restrict sums, const long sums_start)
% endif
{
% for name, _, size in own:
    ${tile_of(f"own_{name}", blocks * size * vectors // fold, wide)};
% endfor
% for name, _, _, size in results:
    ${tile_of(f"sum_{name}", blocks * vectors * pitch_of[size] // fold, wide)};
% endfor
% for name, size in others:
% if place == "local":
    ${tile_of(f"tile_{name}", tile * pitches[name] // wide, wide)};
% endif
% endfor
    ${tile_of("p", tile * vectors)};
% if not is_forward:
    ${tile_of("ds", tile * vectors)};
% endif
% if is_whole:
    ${tile_of("rows_k", blocks * height * pitch // vec)};
% endif
% if is_forward:
    ${vf} top[${blocks * vectors}], sum[${blocks * vectors}];
% elif not by_keys:
    ${vf} own_lse[${blocks * vectors}], own_delta[${blocks * vectors}];
% endif
% if philox:
    const ulong seed = random[random_start];
% endif
    const int shared = heads / shared_by;
    const int batch = (int)get_global_id(1) / shared, shared_head = (int)get_global_id(1) % shared;
% for name in ("k", "v", *(("grad_k", "grad_v") if by_keys else ())):
    ${name} += ${name}_start + batch * ${name}_batch + shared_head * ${name}_head;
% endfor
% for name in ("q", "out") if is_forward else ("q", "grad", *written[:direction != "bwd_kv"]):
    ${name} += ${name}_start + batch * ${name}_batch + shared_head * shared_by * ${name}_head;
% endfor
    // sums and maxima of the queries of all heads that share this one of k and v
    const long line0 = (batch * heads + shared_head * shared_by) * (long)queries;
    lse += lse_start + line0;
% if not is_forward:
    delta += delta_start + line0;
% endif
% if masked:
    mask += mask_start + batch * mask_batch + shared_head * shared_by * mask_head;
% endif
    const int rows = ${"keys" if by_keys else "queries * shared_by"};
    // vectors of all rows, which work-items share out as evenly as can be
    const int places = (rows + ${vec - 1}) / ${vec};
% if not is_whole:
    const int place0 = (int)get_global_id(0) * places / (int)get_global_size(0);
    const int filled = ((int)get_global_id(0) + 1) * places / (int)get_global_size(0) - place0;
% endif
% if is_whole:
    // a head has some rows more than queries, which a last tile adds nothing to
    sums += sums_start + (batch * heads + shared_head * shared_by) * (long)(queries + ${sums}) * ${pitch};
    for (long i = 0; i < shared_by * (long)(queries + ${sums}) * ${pitch // vec}; ++i) {
        vstore${vec}((${vf})(0.0f), i, sums);
    }
    const int parts = (places + ${blocks * vectors - 1}) / ${blocks * vectors};
    for (int part = 0; part < parts; ++part) {
    const int place0 = part * places / parts, filled = (part + 1) * places / parts - place0;
    load_tile(rows_k, k + place0 * ${vec} * k_row, k_row, min(filled * ${vec}, rows - place0 * ${vec}), filled * ${vec}, ${dim});
% endif
    const int row0 = place0 * ${vec}, blocks = (filled + ${vectors - 1}) / ${vectors};

    // rows past the last one are the last one again
% if not by_keys:
    int own_query[${blocks * height}], own_head[${blocks * height}];
% endif
    for (int place = 0; place < filled; ++place) {
% for name, _, _ in own:
        long rows_of_${name}[${vec}];
% endfor
        for (int lane = 0; lane < ${vec}; ++lane) {
            const int r = place * ${vec} + lane, row = min(row0 + r, rows - 1);
% if by_keys:
% for name, _, _ in own:
            rows_of_${name}[lane] = row * ${name}_row;
% endfor
% else:
            own_query[r] = row % queries;
            own_head[r] = row / queries;
% for name, _, _ in own:
            rows_of_${name}[lane] = own_head[r] * ${name}_head + own_query[r] * ${name}_row;
% endfor
% if not is_forward:
            ((float *)own_lse)[r] = lse[row] * LOG2_E;
            ((float *)own_delta)[r] = delta[row];
% endif
% endif
        }
% for name, _, size in own:
        turn_in(own_${name} + place * ${size // fold}, ${name}, rows_of_${name}, ${size}, ${"scale * LOG2_E" if name == pairs[0][0] else "1.0f"});
% endfor
    }
% for name, _, _, size in results:
    for (int i = 0; i < filled * ${pitch_of[size] // fold}; ++i) {
        sum_${name}[i] = 0.0f;
    }
% endfor
% if is_forward:
    for (int v = 0; v < filled; ++v) {
        top[v] = -INFINITY;
        sum[v] = 0.0f;
    }
% endif
% if not by_keys:
    // which others its rows see
    int first = keys, last = 0;
    for (int r = 0; r < filled * ${vec}; ++r) {
        first = min(first, ${seen.first_key("own_query[r]")});
        last = max(last, ${seen.last_key("own_query[r]")});
    }
% else:
    const int first = ${seen.first_query("row0")};
% if joined:
    const int last = queries * shared_by, head = 0;
% else:
    const int last = ${seen.last_query(f"min(row0 + filled * {vec} - 1, keys - 1)")};
    for (int head = 0; head < shared_by; ++head)
% endif
% endif
    {
    // tiles are as even as can be, too
    const int tiles = max(1, (last - first + ${tile - 1}) / ${tile});
    const int step = ((last - first + tiles - 1) / tiles + ${sums - 1}) / ${sums} * ${sums};
    for (int other0 = first; other0 < last; other0 += step) {
        const int count = min(step, last - other0), all = (count + ${sums - 1}) / ${sums} * ${sums};
% if joined:
        ${"if (place0 == 0 || tiles > 1) " if is_whole else ""}{  // a tile that has all rows stays from part to part
            for (int row = 0, of_head = other0 / queries, query = other0 % queries; row < all; ++row) {
% for name, size in others:
                load_row(tile_${name} + row * ${pitches[name] // vec}, ${name} + of_head * ${name}_head + query * ${name}_row, ${size});
% endfor
                if (row < count - 1 && ++query == queries) {
                    query = 0;
                    ++of_head;
                }
            }
        }
% else:
% for name, size in others:
% if place == "local":
        load_tile(tile_${name}, ${name} + ${f"head * {name}_head + " if by_keys else ""}other0 * ${name}_row, ${name}_row, count, all, ${size});
% endif
% endfor
% endif
        for (int block = 0; block < blocks; ++block) {
            // the first vector of the block, and its vectors
            const int begin = block * filled / blocks, width = (block + 1) * filled / blocks - begin;
% if is_plain:
            ${vf} highest[${vectors}];
            for (int v = 0; v < width; ++v) {
                highest[v] = top[begin + v];
            }
% endif
% for (name, other, size), to in zip(own, ("p", "ds")):
            for (int m = 0; m < count; m += ${sums}) {
                scores(width, ${to} + m * ${vectors}, ${at(other, 'm')}, count - m, own_${name} + begin * ${size // fold}, ${size}${', highest' if is_plain else ''}
% if is_forward and place == "global":
                    , block ? 0 : v + (other0 + m) * v_row, v_row  // the first block asks for the values
% endif
                );
            }
% endfor
% if is_forward:
            ${vf} shrink[${vectors}];
% endif
            for (int v = 0; v < width; ++v) {
                const int place = begin + v;
% if by_keys:
                const ${vi} key = row0 + place * ${vec} + LANES;
% else:
                const ${vi} query = vload${vec}(place, own_query);
% endif
% if masked:
                long places[${vec}];
                for (int i = 0; i < ${vec}; ++i) {
% if by_keys:
                    places[i] = head * mask_head + min(row0 + place * ${vec} + i, keys - 1) * mask_column;
% else:
                    places[i] = own_head[place * ${vec} + i] * mask_head + own_query[place * ${vec} + i] * mask_row;
% endif
                }
% endif
% if philox:
% if by_keys:
                const ${vl} counters = (ulong)random[random_start + 1] + (ulong)(line0 + head * (long)queries) * (ulong)keys;
% else:
                const ${vl} counters = (ulong)random[random_start + 1]
                    + ((ulong)line0 + convert_${vl}(vload${vec}(place, own_head)) * (ulong)queries) * (ulong)keys;
% endif
% endif
% if is_forward:
% if is_plain:
                const ${vf} most = highest[v];
% else:
                ${vf} most = top[place];
                for (int m = 0; m < count; ++m) {
                    ${vf} value = p[m * ${vectors} + v];
% if masked:
                    value += mask_of(mask + (other0 + m) * mask_column, places) * LOG2_E;
% endif
% if seen.is_limited:
                    const ${vi} key = other0 + m;
                    value = select((${vf})(-INFINITY), value, (key >= ${seen.first_key("query")}) & (key < ${seen.last_key("query")}));
% endif
                    p[m * ${vectors} + v] = value;
                    most = select(most, value, value > most);  // one instruction, which fmax is not
                }
% endif
                // where all is masked, shift by nothing: exp(-inf) is 0 and stays 0
                const ${vf} shift = select(most, (${vf})(0.0f), most == -INFINITY);
                shrink[v] = power_of_two(top[place] - shift);
                top[place] = most;
                ${vf} added = 0.0f;
                for (int m = 0; m < count; ++m) {
                    ${vf} probability = power_of_two(p[m * ${vectors} + v] - shift);
                    added += probability;
% if philox:
                    probability *= kept(seed, counters, query, (${vi})(other0 + m), keys, chance);
% endif
                    p[m * ${vectors} + v] = probability;
                }
                sum[place] = sum[place] * shrink[v] + added;
% else:
                for (int m = 0; m < count; ++m) {
                    const int at = m * ${vectors} + v;
                    ${vf} value = p[at];
% if by_keys:
                    const ${vi} query = other0 + m;
                    const ${vf} ends = lse[head * queries + other0 + m] * LOG2_E, mean = delta[head * queries + other0 + m];
% else:
                    const ${vi} key = other0 + m;
                    const ${vf} ends = own_lse[place], mean = own_delta[place];
% endif
% if masked:
                    value += mask_of(mask + (other0 + m) * ${"mask_row" if by_keys else "mask_column"}, places) * LOG2_E;
% endif
% if seen.is_limited:
                    value = select((${vf})(-INFINITY), value, (key >= ${seen.first_key("query")}) & (key < ${seen.last_key("query")}));
% endif
                    const ${vf} probability = power_of_two(value - ends);
% if philox:
                    const ${vf} factor = kept(seed, counters, query, key, keys, chance);
                    ds[at] = probability * (ds[at] * factor - mean);
                    p[at] = probability * factor;
% else:
                    ds[at] = probability * (ds[at] - mean);
                    p[at] = probability;
% endif
                }
% endif
            }
            const int own_rows = min(width * ${vec}, rows - row0 - begin * ${vec});
% for name, other, factors, size in results:
            add_${size}((__local float *)sum_${name} + begin * ${vec * pitch_of[size]}, ${pitch_of[size]}, own_rows,
                (__local const float *)${factors}, ${at(other, '0')}, count${", (const float *)shrink" if is_forward else ""});
% endfor
% if is_whole:
            // rows of the tile behind its last one have no slopes
            for (int m = count * ${vectors}; m < all * ${vectors}; ++m) {
                ds[m] = 0.0f;
            }
            add_queries(sums + (head * (long)(queries + ${sums}) + other0) * ${pitch}, ${pitch}, count,
                (__local const float *)ds, (__local const float *)rows_k + begin * ${vec * pitch}, ${pitch}, own_rows);
% endif
        }
    }
    }

    const int own_rows = min(filled * ${vec}, rows - row0);
% if is_forward:
    for (int place = 0; place < filled; ++place) {
        const ${vf} whole = sum[place];
        sum[place] = select(1.0f / whole, (${vf})(0.0f), whole == 0.0f);
        // +inf where all is masked: the backward pass then finds probabilities of 0
        top[place] = select(top[place] / LOG2_E + log(whole), (${vf})(INFINITY), whole == 0.0f);
    }
% endif
    for (int r = 0; r < own_rows; ++r) {
% if is_forward:
        lse[row0 + r] = ((const float *)top)[r];
% endif
% for name, _, _, size in results:
        store_row(${name} + ${f"(row0 + r) * {name}_row" if by_keys else f"own_head[r] * {name}_head + own_query[r] * {name}_row"},
                  (__local const float *)sum_${name} + r * ${pitch_of[size]}, ${size}, ${"((const float *)sum)[r]" if is_forward else "1.0f" if name == "grad_v" else "scale"});
% endfor
    }
% if is_whole:
    }
    for (int head = 0; head < shared_by; ++head) {
        for (int query = 0; query < queries; ++query) {
            store_sums(grad_q + head * grad_q_head + query * grad_q_row,
                       sums + (head * (long)(queries${"" if joined else f" + {sums}"}) + query) * ${pitch}, ${dim}, scale);
        }
    }
% endif
}
