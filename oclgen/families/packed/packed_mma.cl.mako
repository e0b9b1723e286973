<%doc>
y = x w^T for few rows of x on matrix units: weights are unpacked to pairs of 16 bits, which are
exact, and their numbers multiply sums of products.

A work-group computes tile_n outputs after the other for tile_m rows of x: every `groups`-th of
them, or one. Its warps share k: each copies tiles of its own, tile_k weights of tile_n rows as they
are packed, `stages` at a time, and waits for none of the others until all add up in local memory.
Where a warp has one tile of each row, its x stays in registers. A block of sums has further groups
of weights in the columns that x leaves: see `packed_mma_tiles.Tile.groups`. Of 16 x 16 weights a lane has four of row lane / 4
and four of the row 8 below: those of four neighbouring bytes. The instruction's order of k is
theirs, so x is read where it lies, four neighbours by each lane. What lies past an edge is zero.

units               `packed_mma_units`
text                counts and pieces of text: see `packed_mma_text`
tile                a `packed_mma_tiles.Tile`
blocks_m, blocks_n  blocks of 8 rows of x and of 16 rows of w in a work-group: tile_m, tile_n
tile_k              weights of a row in a tile
warps, work_items   warps of a work-group, and their work-items
stages              tiles of a warp in local memory
rounds              tiles of a row that a warp multiplies
k, row_bytes        weights, and bytes, of a row of w
unroll              parts of a tile that are written out one behind the other
pad                 floats behind each row of sums
local_bytes         bytes of local memory
elem_bytes          bytes of an element of x; 4: it is multiplied in three pieces
</%doc>
<%!
    from oclgen.families.packed.packed_mma_text import pair
    from oclgen.families.parts.expressions import plus
%>\
<%
    form, stripe, lanes, width = tile.format, tile.stripes.text, tile.lanes, tile.width
    has_scales, has_numbers = form.group is not None, form.group != 0
    entries, every, pieces, magic = text.entries, text.every, text.pieces, text.magic
    parts, places, per_block, groups = text.parts, text.x_places, text.per_block, tile.groups
    rows_of_block, group_steps = text.rows_of_block, text.steps_of_group
    is_kept = rounds == 1
    stage_bytes, rows_at_once = text.stage_bytes, text.rows_at_once
    items = "float" if elem_bytes == 4 else "ushort"
    raw = "float4" if elem_bytes == 4 else f"uint{text.items // 2}"
    at_once = text.items // 4
    loads, steps = len(places), len(places) * at_once
%>\
${preamble}
${units}
#define WORD(p) (*(__local const uint *)(p))
% if tile.stripes.word == 4:
#define ANY_WORD(p) WORD(p)
% else:
#define ANY_WORD(p) ((uint)((__local const ushort *)(p))[0] | (uint)((__local const ushort *)(p))[1] << 16)
% endif
#define WORDS_T uint
#define BYTES(p) ANY_WORD((p) + ${tile.stretch} * part)
% if has_numbers:

/* what sums of quants from place `at` of the block at p are multiplied by, and what sums of x are */
float2 numbers(__local const uchar *p, const int at, __global const elem_t *s)
{
% for line in stripe.numbers.replace("__global", "__local").splitlines():
    ${line}
% endfor
    return (float2)(d, ${text.zero_of("d", "z")});
}
% endif

/* four quants of four packed bytes: the pairs of the even and of the odd ones */
% if stripe.run:
uint2 quants(const uint bytes, const int high${", const uint upper, const uint shift" if stripe.upper else ""})
{
    uint even = masked(bytes >> (4 * high), 0x000f000fu, ${pair(magic)});
    uint odd = masked(bytes >> (4 * high + 8), 0x000f000fu, ${pair(magic)});
% if stripe.upper:
    even = masked(upper << 4 >> shift, 0x00300030u, even);
    odd = masked(upper >> (4 + shift), 0x00300030u, odd);
% endif
% if text.is_exact:
    even = difference(even, ${pair(magic | stripe.offset)});
    odd = difference(odd, ${pair(magic | stripe.offset)});
% endif
    return (uint2)(even, odd);
}
% else:
uint2 quants(const uint bytes)
{
    const uint2 low = (uint2)(
        masked(bytes, 0x007f007fu, ${pair(magic)}), masked(bytes >> 8, 0x007f007fu, ${pair(magic)}));
    const uint2 signs = (uint2)(
        masked(bytes, 0x00800080u, ${pair(magic)}), masked(bytes >> 8, 0x00800080u, ${pair(magic)}));
    return (uint2)(difference(low.x, signs.x), difference(low.y, signs.y));
}
% endif

/* the pieces of four or eight neighbours of x, as the pairs of the even and of the odd of each four */
void split(const ${raw} value, uint (*pairs)[${pieces}][2])
{
% if elem_bytes == 2:
% for four in range(at_once):
<% low, high = ("x", "y") if four == 0 else ("z", "w") %>\
    pairs[${four}][0][0] = low_halves(value.${low}, value.${high});
    pairs[${four}][0][1] = high_halves(value.${low}, value.${high});
% endfor
% else:
    float4 rest = value;
#pragma unroll
    for (int piece = 0; piece < ${pieces}; ++piece) {
        const uint4 bits = as_uint4(rest);
        pairs[0][piece][0] = high_halves(bits.x, bits.z);
        pairs[0][piece][1] = high_halves(bits.y, bits.w);
        rest -= as_float4(bits & 0xffff0000u);
    }
% endif
}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void packed_mma(
    __global const elem_t *restrict x, const long offset_x, const int ld_x,
    __global const uchar *restrict w, const long offset_w,
% if has_scales:
    __global const elem_t *restrict scales, const long offset_scales,
% endif
    __global elem_t *restrict y, const long offset_y, const int ld_y,
    const int m, const int n)
{
    __local uchar tiles[${local_bytes}] __attribute__((aligned(16)));
    const int id = (int)get_local_id(0);
    const int warp = id / 32, lane = id % 32, line = lane / 4, part = lane % 4;
    const int m0 = (int)get_group_id(1) * ${text.rows}, further = (int)get_num_groups(0) * ${tile_n};
    UNIT_MEMORY
    SUMS_BEGIN(id, ${warps});
    __local float *sums = (__local float *)(tiles + ${local_bytes - text.sums_bytes(warps, pad) * (2 if is_repeated else 1)});
% if has_scales:
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
    __global const ${items} *x_${c} = (__global const ${items} *)(x + offset_x) + min(m0 + ${row}, m - 1) * (long)ld_x + ${tile.stretch} * part${skipped};
% endfor
    const int copied = lane / ${lanes}, byte_0 = lane % ${lanes} * ${width};
    __global const uchar *from = w + offset_w + copied * ${row_bytes}L + byte_0;
    const int mine = warp * ${stages * stage_bytes};
    const int to = mine + copied * ${tile.stride} + byte_0;
% if entries:
    __local float2 *ready = (__local float2 *)(tiles + ${warps * stages * stage_bytes}) + warp * ${entries};
% endif

    // x is asked for first: behind the copies it would wait for them
% if is_kept:
    ${raw} raw[${parts}][${blocks_m}][${loads}];
% for p in range(parts):
${load_x(f"raw[{p}]", f"warp * {tile_k}{plus(p * tile.part)}", " " * 4)}\
% endfor
% else:
    int at_k = warp * ${tile_k};
    ${raw} next_x[${blocks_m}][${loads}];
${load_x("next_x", "at_k", " " * 4)}\
% endif
% if form.group:
    float2 fetched[${-(-entries // 32)}];
${fetch(f"(int)get_group_id(0) * {tile_n}", f"warp * {tile_k}", " " * 4)}\
% endif
    // what is copied next
    int copy_n = (int)get_group_id(0) * ${tile_n}, copy_round = 0;
#pragma unroll 1
    for (int stage = 0; stage < ${stages - 1}; ++stage) {
${copy("stage", " " * 8)}\
    }
% if is_kept:
    uint kept[${parts}][${blocks_m}][${steps}][${pieces}][2];
#pragma unroll
    for (int p = 0; p < ${parts}; ++p)
#pragma unroll
        for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
            for (int s = 0; s < ${loads}; ++s) split(raw[p][c][s], kept[p][c] + ${at_once} * s);
% if text.has_ones:
    // sums of x, or what sums of quants begin with, the same in every row of a block
    float kept_ones[${parts}][${len(text.spans)}][${blocks_m}][2];
#pragma unroll
    for (int p = 0; p < ${parts}; ++p) {
% for i in range(len(text.spans)):
${sums_of_x(f"kept_ones[p][{i}]", "kept[p]", i, " " * 8)}\
% endfor
    }
% endif
% endif
    int slot = 0, turn = 0, before = -1${', shift = 0' if is_repeated else ''};
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
            COPY_WAIT(${stages - 2});
            WARP_SYNC();
            {
                const int next = slot == 0 ? ${stages - 1} : slot - 1;
${copy("next", " " * 16)}\
            }
            __local const uchar *tile = tiles + mine + slot * ${stage_bytes};
            slot = slot == ${stages - 1} ? 0 : slot + 1;
% if form.group or not is_kept:
            const bool last = round == ${rounds - 1};
            const int next_k = ${f"last ? warp * {tile_k} : (round + 1) * {tile_k * warps} + warp * {tile_k}" if rounds > 1 else f"warp * {tile_k}"};
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
                __local const uchar *p = tile + row * ${tile.stride} + quad / 2 * ${form.block_bytes};
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
${fetch("(last ? n0 + further : n0)", "next_k", " " * 12)}\
% endif
% endif
#pragma unroll ${parts if is_kept else unroll}
            for (int p = 0; p < ${parts}; ++p) {
% if not is_kept:
                uint pairs[${blocks_m}][${steps}][${pieces}][2];
#pragma unroll
                for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
                    for (int s = 0; s < ${loads}; ++s) split(next_x[c][s], pairs[c] + ${at_once} * s);
                at_k = p == ${parts - 1} ? next_k : at_k + ${tile.part};
${load_x("next_x", "at_k", " " * 16)}\
% endif
${multiply("kept[p]" if is_kept else "pairs")}\
            }
        }

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
                    STORE1(sum${text.unit}${" * LOAD1(scales + before + j)" if form.group == 0 else ""}, y + offset_y + (m0 + i) * (long)ld_y + before + j);
                }
            }
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
                float sum = acc[r][0][e]${" + acc[r][0][e + 1]" if rows_of_block == 1 else ""};
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
                    mine_of[row * ${tile_n + pad} + r * 16 + e / 2 * 8 + line] = acc[r][c][e];
                }
% endif
        WARP_SYNC();
        SUMS_SENT(lane);
        before = n0;
        turn ^= 1;
    }
    COPY_WAIT(0);
}
<%def name="load_x(into, at, to)">\
${to}if (aligned) {
% for c in range(blocks_m):
% for s, place in enumerate(places):
${to}    LOAD_X(${into}[${c}][${s}], x_${c} + ${at}${plus(place)}, ${at}${plus(place)} + ${tile.stretch} * part < ends_${c});
% endfor
% endfor
${to}} else {
% for c in range(blocks_m):
% for s, place in enumerate(places):
${to}    ${into}[${c}][${s}] = ${at}${plus(place)} + ${tile.stretch} * part < ends_${c} ? ${f"as_{raw}" if elem_bytes == 2 else ""}(vload${text.items}(0, x_${c} + ${at}${plus(place)})) : (${raw})(0);
% endfor
% endfor
${to}}
</%def>\
<%def name="fetch(first_n, at, to)">\
#pragma unroll
${to}for (int i = 0; i < ${-(-entries // 32)}; ++i) {
${to}    const int at = lane + 32 * i, group = min((${at} + at / ${tile_n} * ${every}) / ${form.group}, ${k // form.group - 1});
${to}    fetched[i] = numbers(0, 0, scales + ${"2 * " if form.zeros else ""}(group * (long)n + min(${first_n} + at % ${tile_n}, n - 1)));
${to}}
</%def>\
<%def name="copy(slot, to)">\
${to}const int begin = ${f"(copy_round * {warps} + warp)" if rounds > 1 else "warp"} * ${tile.bytes};
${to}__global const uchar *rows = from + copy_n * ${row_bytes}L${"" if tile.is_skewed else " + begin"};
${to}const local_t place = base + to + ${slot} * ${stage_bytes};
#pragma unroll
${to}for (int i = 0; i < ${tile_n // rows_at_once}; ++i) {
% if tile.is_skewed:
${to}    const int at = begin - ((copy_n + copied + i * ${rows_at_once}) * ${row_bytes} + begin & ${width - 1});
${to}    __global const uchar *row = rows + at + i * ${rows_at_once * row_bytes};
${to}    const int left = copy_n + copied + i * ${rows_at_once} < n ? ${row_bytes} - at - byte_0 : 0;
% else:
${to}    __global const uchar *row = rows + i * ${rows_at_once * row_bytes};
${to}    const int left = copy_n + copied + i * ${rows_at_once} < n ? ${row_bytes} - begin - byte_0 : 0;
% endif
#pragma unroll
${to}    for (int byte = 0; byte < ${width * tile.copies}; byte += ${width * lanes}) {
${to}        ${f"if (byte + byte_0 < {width * tile.copies}) " if tile.copies % lanes else ""}COPY_BYTES(place + i * ${rows_at_once * tile.stride} + byte, row + byte, byte < left ? ${width} : 0);
${to}    }
${to}}
${to}COPY_COMMIT();
% if rounds == 1:
${to}copy_n += further;
% else:
${to}copy_round = copy_round == ${rounds - 1} ? 0 : copy_round + 1;
${to}copy_n += copy_round == 0 ? further : 0;
% endif
</%def>\
<%def name="sums_of_x(ones, pairs, i, to)">\
#pragma unroll
${to}for (int c = 0; c < ${blocks_m}; ++c) {
${to}    float sum[${text.chains}][4];
${to}    for (int e = 0; e < 4; ++e) ${text.zero("sum[{}][e]")}
% for j in range(group_steps):
% for piece in reversed(range(pieces)):
${to}    MMA(sum[${text.chain(j, piece)}], (uint4)(${pair(text.one)}), ${pairs}[c][${i * group_steps + j}][${piece}][0], ${pairs}[c][${i * group_steps + j}][${piece}][1]);
% endfor
% endfor
${to}    for (int e = 0; e < 2; ++e) ${ones}[c][e] = ${"" if text.has_zeros else f"-{text.excess}.0f * "}(${text.added("sum[{}][e]")});
${to}}
</%def>\
<%def name="multiply(pairs)">\
            __local const uchar *first = tile + line * ${tile.stride} + ${"p" if per_block == 1 else f"p / {per_block}"} * ${text.part_bytes};
% if tile.is_skewed:
            const int skew_of = (n0 + line) * ${row_bytes} + (round * ${warps} + warp) * ${tile.bytes};
% endif
% for i, span in enumerate(text.spans):
<% ones = f"kept_ones[p][{i}]" if is_kept else "ones" %>\
            {
% if text.has_ones and not is_kept:
                float ones[${blocks_m}][2];
${sums_of_x("ones", pairs, i, " " * 16)}\
% endif
                float sum[${blocks_n}][${blocks_m}][${text.chains}][4];
#pragma unroll
                for (int r = 0; r < ${blocks_n}; ++r)
                    for (int c = 0; c < ${blocks_m}; ++c)
                        for (int e = 0; e < 4; ++e) {
                            ${text.zero("sum[r][c][{}][e]")}
% if text.has_ones and not text.has_zeros:
                            sum[r][c][0][e] = ${ones}[c][e % 2];
% endif
                        }
% for place, (step, group) in enumerate(span):
<%
    skip = plus(step.block * form.block_bytes)
    at = i * group_steps + place % group_steps
    x = f"{pairs}[c][{at}]"
%>\
% if groups > 1:
                uint mine_${place}[${blocks_m}][${pieces}][2];
#pragma unroll
                for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
                    for (int piece = 0; piece < ${pieces}; ++piece) {
                        mine_${place}[c][piece][0] = own == ${group} ? ${x}[piece][0] : 0u;
                        mine_${place}[c][piece][1] = own == ${group} ? ${x}[piece][1] : 0u;
                    }
<% x = f"mine_{place}[c]" %>\
% endif
#pragma unroll
                for (int r = 0; r < ${blocks_n}; ++r) {
                    const int o = ${text.quants_at(step)}, at = ${text.weights_at(step)};
                    uint2 of[2];
#pragma unroll
                    for (int row = 0; row < 2; ++row) {
                        __local const uchar *p = first + (r * 16 + row * 8) * ${tile.stride}${skip}${f" + (skew_of + (r * 16 + row * 8) * {row_bytes} & {width - 1})" if tile.is_skewed else ""};
                        const uint bytes = ${f"BYTES(p{plus(stripe.quants)} + o)" if text.word_at(step) == "BYTES" else f"WORD(p{plus(stripe.quants)} + o + {tile.stretch} * part)"};
% if stripe.upper:
                        ${stripe.extra}
                        of[row] = quants(bytes, ${step.half}, h, ${stripe.upper});
% else:
                        of[row] = quants(bytes${f", {step.half}" if stripe.run else ""});
% endif
                    }
                    const uint4 block = (uint4)(of[0].x, of[1].x, of[0].y, of[1].y);
#pragma unroll
                    for (int c = 0; c < ${blocks_m}; ++c) {
% for piece in reversed(range(pieces)):
                        MMA(sum[r][c][${text.chain(place, piece)}], block, ${x}[${piece}][0], ${x}[${piece}][1]);
% endfor
                    }
                }
% endfor
<%
    step = span[0][0]
    block_skip = plus(step.block * form.block_bytes)
    columns = range(2 if groups > 1 else 1)
    place = f"p * {tile.part}{plus(tile.place(step))}"
    def of_group(column, each):
        return f" + groups[{column}] * {each}" if groups > 1 else ""
%>\
#pragma unroll
                for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
% if entries:
                        const float2 its[${len(columns)}] = {
% for j in columns:
                            ready[(${place}${of_group(j, tile.shared)}) / ${every} * ${tile_n} + r * 16 + h * 8 + line],
% endfor
                        };
% elif has_numbers:
                        __local const uchar *block = first + (r * 16 + h * 8) * ${tile.stride}${block_skip}${f" + (skew_of + (r * 16 + h * 8) * {row_bytes} & {width - 1})" if tile.is_skewed else ""};
                        const float2 its[${len(columns)}] = {
% for j in columns:
% if tile.shared == form.block:
                            numbers(block${of_group(j, form.block_bytes)}, 0, 0),
% else:
                            numbers(block, ${text.weights_at(step)}${of_group(j, tile.shared)}, 0),
% endif
% endfor
                        };
% endif
#pragma unroll
                        for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
                            for (int e = 2 * h; e < 2 * h + 2; ++e) {
% if has_numbers:
                                const float2 number = its[${"e % 2" if groups > 1 else "0"}];
                                acc[r][c][e] = (${text.added("sum[r][c][{}][e]")}) * number.x + acc[r][c][e];
% else:
                                acc[r][c][e] += ${text.added("sum[r][c][{}][e]")};
% endif
% if text.has_zeros:
                                acc[r][c][e] = ${text.minus}number.y * ${ones}[c][e % 2] + acc[r][c][e];
% endif
                            }
                    }
            }
% endfor
</%def>\
