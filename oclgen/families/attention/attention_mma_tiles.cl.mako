<%doc>
What the kernels of attention on matrix units share: tiles that `cp.async` copies, fragments of
them, scores of a tile. Defs for other templates, no text of its own.

A tile lies in local memory as rows of `pitch` bytes, an odd number of 16-byte chunks of `items`
items, so that neither `ldmatrix` nor a copy meets a bank twice. Rows are the operand's rows; `dim`
items of each are copied and zeros behind them, up to `depth`, a multiple of 16.

A warp computes blocks_m blocks of 16 rows; `rows` are queries, or keys for the gradients of k and
v; the other side's tiles have tile_n rows. `split_d` neighbouring warps share rows: each multiplies
its part of the items, `part` of all, and adds up its part of the result.
</%doc>
<%def name="parameters(strided, direction, masked, dropout)">\
% for name in strided:
    __global ${"" if name.startswith(("out", "grad_")) else "const "}elem_t *restrict ${name}, const long ${name}_start,
    const long ${name}_batch, const long ${name}_head, const long ${name}_row,
% endfor
    __global ${"" if direction == "fwd" else "const "}float *restrict lse, const long lse_start,
% if direction != "fwd":
    __global const float *restrict delta, const long delta_start,
% endif
% if masked:
    __global const elem_t *restrict mask, const long mask_start, const long mask_batch,
    const long mask_head, const long mask_row, const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys,
% if dropout:
    const float chance, __global const long *restrict random, const long random_start,
% endif
    const float scale\
</%def>

<%doc> Copies `height` rows of a matrix whose first is `first`; rows from `count` on become zeros. </%doc>
<%def name="copy(to, source, row, first, count, height, depth, dim, work_items, items=8)">\
<% chunks = depth // items; total = height * chunks; rounds = -(-total // work_items) %>\
    {
#pragma unroll
        for (int i = 0; i < ${rounds}; ++i) {
            const int at = id + i * ${work_items}, line = at / ${chunks}, chunk = at % ${chunks};
            const bool valid = ${first} + line < ${count}${f" && chunk < {dim // items}" if dim < depth else ""};
            ${f"if (at < {total}) " if total % work_items else ""}{
                copy_chunk(${to} + line * ${16 * chunks + 16} + chunk * 16,
                           valid ? ${source} + (${first} + line) * ${row} + chunk * ${items} : ${source}, valid);
            }
        }
    }
</%def>

<%doc> Copies numbers of fp32, zeros from `count` on. </%doc>
<%def name="copy_numbers(to, source, first, count, height, work_items)">\
    for (int i = id; i < ${height}; i += ${work_items}) {
        copy_number(${to} + i * 4, ${first} + i < ${count} ? ${source} + ${first} + i : ${source}, ${first} + i < ${count});
    }
</%def>

<%doc> The places of a lane's chunk in blocks of rows (a), of columns (b) and, transposed, of steps (t). </%doc>
<%def name="lanes(pitches, split_d=1)">\
    const int lane = id % 32, warp = id / ${32 * split_d};
% if split_d > 1:
    const int part = id / 32 % ${split_d};
% endif
% for pitch in sorted(set(pitches)):
    const uint a_${pitch} = lane % 16 * ${pitch} + lane / 16 * 16;
    const uint b_${pitch} = (lane % 8 + lane / 16 * 8) * ${pitch} + lane / 8 % 2 * 16;
% endfor
</%def>

<%doc> Fragments of a warp's rows: kept in registers, `tile` names where they lie until then. </%doc>
<%def name="keep(name, tile, depth, blocks_m, items=8, split_d=1)">\
<% pitch = 16 * (depth // items + 1); steps = depth // (2 * items * split_d) %>\
    uint4 ${name}[${blocks_m}][${steps}];
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int k = 0; k < ${steps}; ++k) {
            ${name}[i][k] = fragment(${tile} + (warp * ${blocks_m} + i) * ${16 * pitch} + a_${pitch}${beside(steps * 32, split_d)} + k * 32);
        }
    }
</%def>

<%doc> Where the part of a warp's items begins behind the first, as text to add to a place. </%doc>
<%def name="beside(size, split_d)">\
${f" + part * {size}" if split_d > 1 else ""}\
</%def>

<%doc> to[row][column] = rows · columns^T, of kept fragments or of those in local memory. </%doc>
<%def name="products(to, rows, kept, tile, depth, blocks_m, tile_n, split_d=1)">\
<% pitch = 2 * depth + 16; steps = depth // 16 // split_d %>\
#pragma unroll
        for (int k = 0; k < ${steps}; ++k) {
% if not kept:
            uint4 own[${blocks_m}];
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
                own[i] = fragment(${rows} + (warp * ${blocks_m} + i) * ${16 * pitch} + a_${pitch}${beside(steps * 32, split_d)} + k * 32);
            }
% endif
#pragma unroll
            for (int n = 0; n < ${tile_n // 16}; ++n) {
                const uint4 other = fragment(${tile} + n * ${16 * pitch} + b_${pitch}${beside(steps * 32, split_d)} + k * 32);
#pragma unroll
                for (int i = 0; i < ${blocks_m}; ++i) {
                    MMA(${to}[i][2 * n], ${f"{rows}[i][k]" if kept else "own[i]"}, other.x, other.y);
                    MMA(${to}[i][2 * n + 1], ${f"{rows}[i][k]" if kept else "own[i]"}, other.z, other.w);
                }
            }
        }
</%def>

<%doc>
Adds to the arrays `names` what the warps with the other parts of the items found. They meet in
local memory behind `at`, where nothing is written again before the next tile's barrier.
</%doc>
<%def name="add_parts(names, at, blocks_m, tile_n, split_d)">\
<% of_warp = len(names) * blocks_m * tile_n // 2 %>\
        {
            __local float *sums_of_warps = (__local float *)(tiles + ${at}) + lane;
            __local float *own_sums = sums_of_warps + id / 32 * ${32 * of_warp};
${each_sum(names, blocks_m, tile_n, "own_sums[{place} * 32] = {sum};")}\
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (int other = 1; other < ${split_d}; ++other) {
                __local const float *from = sums_of_warps + (warp * ${split_d} + (part + other) % ${split_d}) * ${32 * of_warp};
${each_sum(names, blocks_m, tile_n, "{sum} += from[{place} * 32];")}\
            }
        }
</%def>

<%def name="each_sum(names, blocks_m, tile_n, statement)">\
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
                for (int j = 0; j < ${tile_n // 8}; ++j) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
% for number, name in enumerate(names):
                        ${statement.format(sum=f"{name}[i][j][e]", place=f"(((i + {number * blocks_m}) * {tile_n // 8} + j) * 4 + e)")}
% endfor
                    }
                }
            }
</%def>

<%doc> to[row][item] += scores · tile, where scores are rounded to the operands' dtype. </%doc>
<%def name="accumulate(to, scores, tile, depth, blocks_m, tile_n, split_d=1)">\
<% pitch = 2 * depth + 16; blocks = depth // 16 // split_d %>\
#pragma unroll
        for (int k = 0; k < ${tile_n // 16}; ++k) {
            uint4 own[${blocks_m}];
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
                own[i].x = pair_of(${scores}[i][2 * k][0], ${scores}[i][2 * k][1]);
                own[i].y = pair_of(${scores}[i][2 * k][2], ${scores}[i][2 * k][3]);
                own[i].z = pair_of(${scores}[i][2 * k + 1][0], ${scores}[i][2 * k + 1][1]);
                own[i].w = pair_of(${scores}[i][2 * k + 1][2], ${scores}[i][2 * k + 1][3]);
            }
#pragma unroll
            for (int n = 0; n < ${blocks}; ++n) {
                const uint4 other = fragment_trans(${tile} + k * ${16 * pitch} + a_${pitch}${beside(blocks * 32, split_d)} + n * 32);
#pragma unroll
                for (int i = 0; i < ${blocks_m}; ++i) {
                    MMA(${to}[i][2 * n], own[i], other.x, other.y);
                    MMA(${to}[i][2 * n + 1], own[i], other.z, other.w);
                }
            }
        }
</%def>

<%def name="zeros(name, blocks_m, columns)">\
    float ${name}[${blocks_m}][${columns // 8}][4];
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int j = 0; j < ${columns // 8}; ++j) {
            ${name}[i][j][0] = ${name}[i][j][1] = ${name}[i][j][2] = ${name}[i][j][3] = 0.0f;
        }
    }
</%def>

<%doc> Runs `body` for each score of a tile: `row` and `column` are its places, `score` the float. </%doc>
<%def name="each(scores, first, row0, blocks_m, tile_n, body)">\
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
                for (int j = 0; j < ${tile_n // 8}; ++j) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int row = ${row0} + (warp * ${blocks_m} + i) * 16 + e / 2 * 8 + lane / 4;
                        const int column = ${first} + j * 8 + lane % 4 * 2 + e % 2;
${body(f"{scores}[i][j][e]")}\
                    }
                }
            }
</%def>

<%doc> Stores a warp's rows, of which `count` exist, as pairs; `factor` is written in i and h. </%doc>
<%def name="store(to, row, sums, depth, dim, blocks_m, row0, count, factor='', split_d=1)">\
<%
    blocks = dim // 8 if split_d == 1 else depth // 8 // split_d
    inside = f"if (part * {8 * blocks} + j * 8 < {dim}) " if split_d > 1 and dim < depth else ""
%>\
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int line = ${row0} + (warp * ${blocks_m} + i) * 16 + h * 8 + lane / 4;
            if (line < ${count}) {
#pragma unroll
                for (int j = 0; j < ${blocks}; ++j) {
                    ${inside}*(__global uint *)(${to} + line * ${row}${beside(8 * blocks, split_d)} + j * 8 + lane % 4 * 2) =
                        pair_of(${sums}[i][j][2 * h]${factor}, ${sums}[i][j][2 * h + 1]${factor});
                }
            }
        }
    }
</%def>
