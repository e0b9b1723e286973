<%doc>
What the kernels of attention on matrix units share: tiles that `cp.async` copies, fragments of
them, scores of a tile. Defs for other templates, no text of its own.

A tile lies in local memory as rows of `pitch` bytes, an odd number of 16-byte chunks, so that
neither `ldmatrix` nor a copy meets a bank twice. Rows are the operand's rows; `dim` items of each
are copied and zeros behind them, up to `depth`, a multiple of 16.

A warp computes blocks_m blocks of 16 rows; `rows` are queries, or keys for the gradients of k and
v; the other side's tiles have tile_n rows.
</%doc>
<%def name="parameters(strided, direction, masked)">\
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
    const float scale\
</%def>

<%doc> Copies `height` rows of a matrix whose first is `first`; rows from `count` on become zeros. </%doc>
<%def name="copy(to, source, row, first, count, height, depth, dim, work_items)">\
<% chunks = depth // 8; total = height * chunks; rounds = -(-total // work_items) %>\
    {
#pragma unroll
        for (int i = 0; i < ${rounds}; ++i) {
            const int at = id + i * ${work_items}, line = at / ${chunks}, chunk = at % ${chunks};
            const bool valid = ${first} + line < ${count}${f" && chunk < {dim // 8}" if dim < depth else ""};
            ${f"if (at < {total}) " if total % work_items else ""}{
                copy_chunk(${to} + line * ${2 * depth + 16} + chunk * 16,
                           valid ? ${source} + (${first} + line) * ${row} + chunk * 8 : ${source}, valid);
            }
        }
    }
</%def>

<%doc> The places of a lane's chunk in blocks of rows (a), of columns (b) and, transposed, of steps (t). </%doc>
<%def name="lanes(pitches)">\
    const int lane = id % 32, warp = id / 32;
% for pitch in sorted(set(pitches)):
    const uint a_${pitch} = lane % 16 * ${pitch} + lane / 16 * 16;
    const uint b_${pitch} = (lane % 8 + lane / 16 * 8) * ${pitch} + lane / 8 % 2 * 16;
% endfor
</%def>

<%doc> Fragments of a warp's rows: kept in registers, `from_tile` names where they lie until then. </%doc>
<%def name="keep(name, tile, depth, blocks_m)">\
    uint4 ${name}[${blocks_m}][${depth // 16}];
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int k = 0; k < ${depth // 16}; ++k) {
            ${name}[i][k] = fragment(${tile} + (warp * ${blocks_m} + i) * ${16 * (2 * depth + 16)} + a_${2 * depth + 16} + k * 32);
        }
    }
</%def>

<%doc> to[row][column] = rows · columns^T, of kept fragments or of those in local memory. </%doc>
<%def name="products(to, rows, kept, tile, depth, blocks_m, tile_n)">\
<% pitch = 2 * depth + 16 %>\
#pragma unroll
        for (int k = 0; k < ${depth // 16}; ++k) {
% if not kept:
            uint4 own[${blocks_m}];
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
                own[i] = fragment(${rows} + (warp * ${blocks_m} + i) * ${16 * pitch} + a_${pitch} + k * 32);
            }
% endif
#pragma unroll
            for (int n = 0; n < ${tile_n // 16}; ++n) {
                const uint4 other = fragment(${tile} + n * ${16 * pitch} + b_${pitch} + k * 32);
#pragma unroll
                for (int i = 0; i < ${blocks_m}; ++i) {
                    MMA(${to}[i][2 * n], ${f"{rows}[i][k]" if kept else "own[i]"}, other.x, other.y);
                    MMA(${to}[i][2 * n + 1], ${f"{rows}[i][k]" if kept else "own[i]"}, other.z, other.w);
                }
            }
        }
</%def>

<%doc> to[row][item] += scores · tile, where scores are rounded to the operands' dtype. </%doc>
<%def name="accumulate(to, scores, tile, depth, blocks_m, tile_n)">\
<% pitch = 2 * depth + 16 %>\
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
            for (int n = 0; n < ${depth // 16}; ++n) {
                const uint4 other = fragment_trans(${tile} + k * ${16 * pitch} + a_${pitch} + n * 32);
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
<%def name="store(to, row, sums, depth, dim, blocks_m, row0, count, factor='')">\
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int line = ${row0} + (warp * ${blocks_m} + i) * 16 + h * 8 + lane / 4;
            if (line < ${count}) {
#pragma unroll
                for (int j = 0; j < ${dim // 8}; ++j) {
                    *(__global uint *)(${to} + line * ${row} + j * 8 + lane % 4 * 2) =
                        pair_of(${sums}[i][j][2 * h]${factor}, ${sums}[i][j][2 * h + 1]${factor});
                }
            }
        }
    }
</%def>
