<%doc>
y = x w^T for few rows of x on matrix units: weights are unpacked to pairs of 16 bits, which are
exact, and their numbers multiply sums of products.

A work-group computes one block of tile_n outputs, for tile_m rows of x, or several one after the
other. Its warps share k: each copies tiles of its own, tile_k weights of tile_n rows as they are
packed, `stages` at a time, and waits for none of the others until all add up in local memory. A
warp that has one tile of each row keeps its x in registers.

With `split_k` several work-groups share a block of outputs: slices of k, of which each has all the
warps that it would have alone. They leave the sums of all their blocks in `partials`, and the last of
them to arrive adds these up in the order of the slices, so results repeat exactly. None waits for
another.

Of 16 x 16 weights a lane has four of row lane / 4 and four of the row 8 below: those of four
neighbouring bytes. The instruction's order of k is theirs, so x is read where it lies, four or
eight neighbours by each lane. Columns that x leaves multiply further groups of weights: see
`packed_mma_tiles.Tile.groups`. What lies past an edge is zero.

units               `packed_mma_units`
text                counts and pieces of text: see `packed_mma_text`
tile                a `packed_mma_tiles.Tile`
blocks_m, blocks_n  blocks of 8 rows of x and of 16 rows of w in a work-group: tile_m, tile_n
tile_k              weights of a row in a tile
warps, work_items   warps of a work-group, and their work-items
split_k             work-groups that share a block of outputs
share, shares       index of a warp among those that share a block of outputs, and their number
stages              tiles of a warp in local memory; 1: none is, each lane loads what it multiplies
is_direct           whether that is so
slots               where tiles lie in local memory: see `packed_mma_tiles.Slots`
is_partial          whether warps that share slots have fewer tiles in them, or none, at the end of k
rounds              tiles of a row that a warp multiplies
is_repeated         whether a work-group computes several blocks of outputs
most_blocks         blocks of outputs of a work-group at most
k, row_bytes        weights, and bytes, of a row of w
unroll              parts of a tile that are written out one behind the other
pad                 floats behind each row of sums
local_bytes         bytes of local memory, of which tiles take the first tiles_bytes
elem_bytes          bytes of an element of x; 4: it is multiplied in pieces, by a power of two that
                    lets the largest of a row fill fp16's range: see `packed_mma_products.scales_of`
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
%>\
<%namespace name="weights" file="packed_mma_weights.cl.mako"/>\
<%namespace name="bulk_copies" file="packed_mma_bulk.cl.mako"/>\
<%namespace name="moves" file="packed_mma_moves.cl.mako"/>\
<%namespace name="products" file="packed_mma_products.cl.mako"/>\
<%namespace name="passing" file="passing.cl.mako"/>\
<%
    form, stripe, lanes, width = tile.format, tile.stripes.text, tile.lanes, tile.width
    entries, parts, groups, pieces = text.entries, text.parts, tile.groups, text.pieces
    loads, steps, at_once = len(text.x_places), text.steps, text.items // 4
    is_kept, rows_of_block, raw = rounds == 1, text.rows_of_block, text.raw
    items = "float" if elem_bytes == 4 else "ushort"
    times_scale, block_sums = " * scale[c]" if text.is_scaled else "", text.rows * tile_n
%>\
<%def name="store(first, to)">\
${to}STORE1(sum${text.unit}${f" * LOAD1(scales + {first} + j)" if tile.format.group == 0 else ""}, y + offset_y + (m0 + i) * (long)ld_y + ${first} + j);
</%def>\
${preamble}
${units}
${weights.functions()}\

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void packed_mma(
    __global const elem_t *restrict x, const long offset_x, const int ld_x,
    __global const uchar *restrict w, const long offset_w,
% if form.group is not None:
    __global const elem_t *restrict scales, const long offset_scales,
% endif
    __global elem_t *restrict y, const long offset_y, const int ld_y,
    const int m, const int n${"," if split_k > 1 else ")"}
% if split_k > 1:
    __global float *restrict partials, const long offset_partials,
    __global int *restrict counters, const long offset_counters)
% endif
{
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    const int id = (int)get_local_id(0);
    const int warp = id / 32, lane = id % 32, line = lane / 4, part = lane % 4;
    const int m0 = (int)get_group_id(1) * ${text.rows}, further = (int)get_num_groups(0) * ${tile_n};
% if split_k > 1:
    __local int arrived;
    const int slice = (int)get_group_id(2), share = slice * ${warps} + warp;
    // what the slices of these blocks leave, and the counter of those that have
    const int blocks = (int)(get_group_id(1) * get_num_groups(0) + get_group_id(0));
    __global float *const left = partials + offset_partials + blocks * ${most_blocks * split_k * block_sums}L;
    __global int *const counter = counters + offset_counters + blocks;
    int nth_block = 0;
% endif
    UNIT_MEMORY
% if slots.sharing:
${bulk_copies.begin()}\
% endif
    SUMS_BEGIN(id, ${warps});
    __local float *sums = (__local float *)(tiles + ${local_bytes - text.sums_bytes(warps, pad) * (2 if is_repeated else 1)});
% if form.group is not None:
    scales += offset_scales;
% endif
    // where this lane reads x, and its first copy of a tile
    const bool aligned = ((ulong)(x + offset_x) | (ulong)ld_x * ${elem_bytes}) % ${text.items * elem_bytes} == 0;
% if groups > 1:
    // the group of weights that this lane's x belongs to, and those of its two columns of sums
    const int own = line / ${rows_of_block};
    const int groups[2] = {min(2 * part / ${rows_of_block}, ${groups - 1}), min((2 * part + 1) / ${rows_of_block}, ${groups - 1})};
% endif
% for c in range(blocks_m):
<%
    row = f"line % {rows_of_block}" if groups > 1 else f"line{plus(8 * c)}"
    skipped = f" + own * {tile.shared}" if groups > 1 else ""
%>\
    const int ends_${c} = m0 + ${row} < m${f" && own < {groups}" if groups > 1 else ""} ? ${k}${skipped.replace("+", "-")} : 0;
    __global const ${items} *x_${c} = (__global const ${items} *)(x + offset_x) + min(m0 + ${row}, m - 1) * (long)ld_x + ${text.lane_x}${skipped};
% endfor
% if is_direct:
    __global const uchar *from = w + offset_w + line * ${row_bytes}L + 8 * part;
    uint2 next[${blocks_n}][2][${tile.pieces}];
% if text.heads:
    uint4 heads[${text.heads}];
    __local uchar *headed = tiles + ${warps * 8 * entries} + warp * ${text.heads_bytes} + lane * 16;
% endif
% elif not slots.sharing:
    const int copied = lane / ${lanes}, byte_0 = lane % ${lanes} * ${width};
    __global const uchar *from = w + offset_w + copied * ${row_bytes}L + byte_0;
    const int mine = warp * ${stages * slots.slot_bytes};
    const int to = mine + copied * ${slots.stride} + byte_0;
% endif
% if entries:
    __local float2 *ready = (__local float2 *)(tiles + ${0 if is_direct else tiles_bytes}) + warp * ${entries};
% endif

    // x is asked for first: behind the copies it would wait for them
% if is_kept:
    ${raw} raw[${parts}][${blocks_m}][${loads}];
% for p in range(parts):
${moves.load_x(f"raw[{p}]", f"{share} * {tile_k}{plus(p * tile.part)}", " " * 4)}\
% endfor
% else:
    int at_k = ${share} * ${tile_k};
    ${raw} next_x[${blocks_m}][${loads}];
${moves.load_x("next_x", "at_k", " " * 4)}\
% endif
% if form.group:
    float2 fetched[${-(-entries // 32)}];
${moves.fetch(f"(int)get_group_id(0) * {tile_n}", f"{share} * {tile_k}", " " * 4)}\
% endif
    // what is copied next
    int copy_n = (int)get_group_id(0) * ${tile_n}, copy_round = 0;
% if slots.sharing:
${bulk_copies.fill()}\
% elif is_direct:
    {
${moves.take(" " * 8)}\
    }
% else:
#pragma unroll 1
    for (int stage = 0; stage < ${stages - 1}; ++stage) {
${moves.copy("stage", " " * 8)}\
    }
% endif
% if is_kept:
    uint kept[${parts}][${blocks_m}][${steps}][${pieces}][2];
% if text.is_scaled:
${products.scales_of([f"raw[{p}]" for p in range(parts)], " " * 4)}\
% endif
#pragma unroll
    for (int p = 0; p < ${parts}; ++p)
#pragma unroll
        for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
            for (int s = 0; s < ${loads}; ++s) split(raw[p][c][s]${times_scale}, kept[p][c] + ${at_once} * s);
% if text.has_ones:
    // sums of x, or what sums of quants begin with, the same in every row of a block
    float kept_ones[${parts}][${len(text.spans)}][${blocks_m}][2];
#pragma unroll
    for (int p = 0; p < ${parts}; ++p) {
% for i in range(len(text.spans)):
${products.sums_of_x(f"kept_ones[p][{i}]", "kept[p]", i, " " * 8)}\
% endfor
    }
% endif
% endif
    int ${"" if is_direct else "slot = 0, "}${"parity = 0, " if slots.sharing else ""}turn = 0, before = -1${', shift = 0' if is_repeated else ''};
#pragma unroll 1
    for (int n0 = (int)get_group_id(0) * ${tile_n};; n0 += further) {
        float acc[${blocks_n}][${blocks_m}][4];
#pragma unroll
        for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
            for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) acc[r][c][e] = 0.0f;

#pragma unroll 1
        for (int round = 0; round < (n0 < n ? ${rounds} : 0); ++round) {
% if is_direct:
            uint2 held[${blocks_n}][2][${tile.pieces}];
#pragma unroll
            for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
                for (int row = 0; row < 2; ++row)
#pragma unroll
                    for (int i = 0; i < ${tile.pieces}; ++i) held[r][row][i] = next[r][row][i];
% for i in range(text.heads):
            *(__local uint4 *)(headed + ${512 * i}) = heads[${i}];
% endfor
            WARP_SYNC();
            {
${moves.take(" " * 16)}\
            }
% elif slots.sharing:
${bulk_copies.wait_for(" " * 12)}\
% else:
            COPY_WAIT(${stages - 2});
            WARP_SYNC();
            {
                const int next = slot == 0 ? ${stages - 1} : slot - 1;
${moves.copy("next", " " * 16)}\
            }
            __local const uchar *tile = tiles + mine + slot * ${slots.slot_bytes};
            slot = slot == ${stages - 1} ? 0 : slot + 1;
% endif
% if form.group or not is_kept:
            const bool last = round == ${rounds - 1};
            const int next_k = ${f"last ? {share} * {tile_k} : (round + 1) * {tile_k * shares} + {share} * {tile_k}" if rounds > 1 else f"{share} * {tile_k}"};
% endif
% if entries:
% if form.group:
#pragma unroll
            for (int i = 0; i < ${-(-entries // 32)}; ++i) {
                ${f"if (lane + 32 * i < {entries}) " if entries % 32 else ""}ready[lane + 32 * i] = fetched[i];
            }
% else:
            for (int i = 0; i < ${entries // 128}; ++i) {
                const int at = lane + 32 * i, row = at % ${tile_n}, quad = at / ${tile_n}, first = quad % 2 * 4;
                __local const uchar *p = ${"headed + 512 * i" if is_direct else f"tile + row * {slots.stride} + quad / 2 * {form.block_bytes}"};
% for line in stripe.quads.replace("__global", "__local").splitlines():
                ${line}
% endfor
% for j in range(4):
                ready[(4 * quad + ${j}) * ${tile_n} + row] = (float2)(d.s${j}, ${text.zero_of(f"d.s{j}", f"z.s{j}")});
% endfor
            }
% endif
            WARP_SYNC();
% if form.group:
${moves.fetch("(last ? n0 + further : n0)", "next_k", " " * 12)}\
% endif
% endif
#pragma unroll ${parts if is_kept else unroll}
            for (int p = 0; p < ${parts}; ++p) {
% if not is_kept:
                uint pairs[${blocks_m}][${steps}][${pieces}][2];
% if text.is_scaled:
${products.scales_of(["next_x"], " " * 16)}\
% endif
#pragma unroll
                for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
                    for (int s = 0; s < ${loads}; ++s) split(next_x[c][s]${times_scale}, pairs[c] + ${at_once} * s);
                at_k = p == ${parts - 1} ? next_k : at_k + ${tile.part};
${moves.load_x("next_x", "at_k", " " * 16)}\
% endif
${products.multiply("kept[p]" if is_kept else "pairs")}\
            }
% if slots.sharing:
${bulk_copies.refill(" " * 12)}\
% endif
        }

% if is_partial:
${bulk_copies.drop(" " * 8)}\
% endif
        // a warp reads a block's sums behind its own share of the next one, and so seldom waits
        if (before >= 0) {
            SUMS_AWAIT(turn ^ 1);
            __local const float *there = sums${f" + (turn ^ 1) * {text.sums_bytes(warps, pad) // 4}" if is_repeated else ""};
% if text.rows * tile_n <= work_items:
            const int at = ${f"id < shift ? id - shift + {work_items} : id - shift" if is_repeated else "id"};
            if (at < ${text.rows * tile_n}) {
% else:
#pragma unroll 1
            for (int at = id; at < ${text.rows * tile_n}; at += ${work_items}) {
% endif
                const int i = at / ${tile_n}, j = at % ${tile_n};
                if (m0 + i < m && before + j < n) {
                    float sum = 0.0f;
#pragma unroll
                    for (int other = 0; other < ${warps}; ++other) sum += there[(other * ${text.rows} + i) * ${tile_n + pad} + j];
% if split_k > 1:
                    PASS(sum, left + (nth_block * ${split_k} + slice) * ${block_sums} + at);
% else:
${store("before", " " * 20)}\
% endif
                }
            }
% if split_k > 1:
            ++nth_block;
% endif
        }
% if is_repeated and text.rows * tile_n < work_items:
        // other warps store the next block
        shift = (shift + ${text.rows * tile_n}) % ${work_items};
% endif
        if (n0 >= n) break;
        __local float *mine_of = sums${f" + turn * {text.sums_bytes(warps, pad) // 4}" if is_repeated else ""};
% if groups > 1:
        // sums of all groups, which neighbouring lanes have
#pragma unroll
        for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
            for (int e = 0; e < 4; e += ${2 if rows_of_block == 1 else 1}) {
% if is_kept and text.is_scaled:
                float sum = acc[r][0][e] * inverse[0][e % 2]${" + acc[r][0][e + 1] * inverse[0][1]" if rows_of_block == 1 else ""};
% else:
                float sum = acc[r][0][e]${" + acc[r][0][e + 1]" if rows_of_block == 1 else ""};
% endif
% for mask in (1, 2) if rows_of_block < 4 else (2,):
                sum += from_lane(sum, ${mask});
% endfor
                if (part < ${max(1, rows_of_block // 2)}) {
                    const int row = warp * ${text.rows} + ${"0" if rows_of_block == 1 else "part * 2 + e % 2"};
                    mine_of[row * ${tile_n + pad} + r * 16 + e / 2 * 8 + line] = sum;
                }
            }
% else:
#pragma unroll
        for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
            for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = warp * ${tile_m} + c * 8 + part * 2 + e % 2;
                    mine_of[row * ${tile_n + pad} + r * 16 + e / 2 * 8 + line] = acc[r][c][e]${' * inverse[c][e % 2]' if is_kept and text.is_scaled else ''};
                }
% endif
        WARP_SYNC();
        SUMS_SENT(lane);
        before = n0;
        turn ^= 1;
    }
% if not is_direct and not slots.sharing:
    COPY_WAIT(0);
% endif
% if split_k > 1:
${passing.counted_in("arrived", "counter", " " * 4)}\
    if (arrived == ${split_k - 1}) {
        if (id == 0) atomic_xchg(counter, 0);
        for (int all = id; all < nth_block * ${block_sums}; all += ${work_items}) {
            const int nth = all / ${block_sums}, at = all % ${block_sums}, i = at / ${tile_n}, j = at % ${tile_n};
            const int first = (int)get_group_id(0) * ${tile_n} + nth * further;
            if (m0 + i < m && first + j < n) {
                float sum = 0.0f, theirs[${split_k}];
#pragma unroll
                for (int other = 0; other < ${split_k}; ++other) TAKE(theirs[other], left + (nth * ${split_k} + other) * ${block_sums} + at);
#pragma unroll
                for (int other = 0; other < ${split_k}; ++other) sum += theirs[other];
${store("first", " " * 16)}\
            }
        }
    }
% endif
}
