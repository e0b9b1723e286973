<%doc>
What the kernels of `attention_lanes` share: copies of tiles, rows in registers, products of both.
Defs for other templates, no text of its own.

A tile's rows lie densely, `depth` items each, zeros behind the first `dim`. Vector i of a
work-item is vector i * lanes + lane of its row.
</%doc>
<%namespace name="mma" file="attention_mma_tiles.cl.mako"/>\
<%def name="parameters(strided, direction, masked)">\
${mma.parameters(strided, direction, masked)}\
</%def>

<%doc> Copies `height` rows of a matrix whose first is `first`; rows from `count` on become zeros. </%doc>
<%def name="copy(to, source, row, first, count, height, depth, dim, work_items)">\
<% chunks = depth // 4; total = height * chunks %>\
    {
#pragma unroll
        for (int i = 0; i < ${-(-total // work_items)}; ++i) {
            const int at = id + i * ${work_items}, line = at / ${chunks}, part = at % ${chunks};
            const bool valid = ${first} + line < ${count}${f" && part < {dim // 4}" if dim < depth else ""};
            ${f"if (at < {total}) " if total % work_items else ""}{
                copy_chunk(${to} + at * 16, valid ? ${source} + (${first} + line) * ${row} + part * 4 : ${source}, valid);
            }
        }
    }
</%def>

<%doc> A work-item's vectors of its rows, zeros where there is no such row or vector. </%doc>
<%def name="own(name, source, row, count, rows, vectors, lanes, dim)">\
    float4 ${name}[${rows}][${vectors}];
#pragma unroll
    for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
        for (int i = 0; i < ${vectors}; ++i) {
            const int part = i * ${lanes} + lane;
            const bool valid = own + r < ${count}${f" && part < {dim // 4}" if dim // 4 < vectors * lanes else ""};
            ${name}[r][i] = valid ? *(__global const float4 *)(${source} + (own + r) * ${row} + part * 4) : (float4)(0.0f);
        }
    }
</%def>

<%def name="zeros(name, rows, vectors)">\
    float4 ${name}[${rows}][${vectors}];
#pragma unroll
    for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
        for (int i = 0; i < ${vectors}; ++i) {
            ${name}[r][i] = (float4)(0.0f);
        }
    }
</%def>

<%doc> to[r][c] = row r times row c of a tile: a part of it by each lane, which are added up. </%doc>
<%def name="products(to, own, tile, rows, vectors, lanes, chunk, depth)">\
            {
                __local const float4 *from = ${tile};
#pragma unroll
                for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        ${to}[r][c] = 0.0f;
                    }
                }
#pragma unroll
                for (int i = 0; i < ${vectors}; ++i) {
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        const float4 other = from[c * ${depth // 4} + i * ${lanes}];
#pragma unroll
                        for (int r = 0; r < ${rows}; ++r) {
                            ${to}[r][c] += ${own}[r][i].x * other.x;
                            ${to}[r][c] += ${own}[r][i].y * other.y;
                            ${to}[r][c] += ${own}[r][i].z * other.z;
                            ${to}[r][c] += ${own}[r][i].w * other.w;
                        }
                    }
                }
% for bit in (1, 2, 4, 8, 16):
% if bit < lanes:
#pragma unroll
                for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        ${to}[r][c] += from_lane(${to}[r][c], ${bit});
                    }
                }
% endif
% endfor
            }
</%def>

<%doc> to[r] += the scores of row r times rows of a tile. </%doc>
<%def name="accumulate(to, scores, tile, rows, vectors, lanes, chunk, depth)">\
            {
                __local const float4 *from = ${tile};
#pragma unroll
                for (int i = 0; i < ${vectors}; ++i) {
#pragma unroll
                    for (int c = 0; c < ${chunk}; ++c) {
                        const float4 other = from[c * ${depth // 4} + i * ${lanes}];
#pragma unroll
                        for (int r = 0; r < ${rows}; ++r) {
                            ${to}[r][i] += ${scores}[r][c] * other;
                        }
                    }
                }
            }
</%def>

<%def name="store(to, row, count, sums, rows, vectors, lanes, dim, factor='')">\
#pragma unroll
    for (int r = 0; r < ${rows}; ++r) {
#pragma unroll
        for (int i = 0; i < ${vectors}; ++i) {
            const int part = i * ${lanes} + lane;
            if (own + r < ${count}${f" && part < {dim // 4}" if dim // 4 < vectors * lanes else ""}) {
                *(__global float4 *)(${to} + (own + r) * ${row} + part * 4) = ${sums}[r][i]${factor};
            }
        }
    }
</%def>
