<%doc>
Products of attention in fp32 on matrix units for tf32, in the place of those of
attention_mma_tiles. Defs for other templates, no text of its own.

A number is the sum of two of tf32: itself rounded, and what that leaves. Three products of such
parts, all but that of the two remainders, give fp32's digits (Markidis et al. 2018,
arXiv:1803.04014).

Units add with fewer digits than fp32 has, and cut off the rest. So products with remainders have
sums of their own, and so has a tile; additions of fp32 bring them together. An addition to a sum
also waits for the one before it, so that more sums keep the units busier.

Of a product with scores the units' step and column are free to name: step t and t + 4 of eight
are rows 2 t and 2 t + 1 of the tile, as a work-item holds scores, and column c of `wide`
neighbouring blocks is item wide * c and those behind it, so that one vector is read for all.
</%doc>
<%namespace name="share" file="attention_mma_tiles.cl.mako"/>\
<%!
    def wide_of(depth):
        return 4 if depth % 32 == 0 else 2
%>\
<%doc> Behind the units' text: the parts of numbers, by their bits. </%doc>
<%def name="functions()">\
% for n in (2, 4):
/* to the 11 bits of tf32, halves away from zero */
uint${n} rounded${n}(const uint${n} value)
{
    return (value + 0x1000u) & 0xffffe000u;
}

uint${n} rest${n}(const uint${n} value, const uint${n} part)
{
    return as_uint${n}(as_float${n}(value) - as_float${n}(part));
}
% endfor
</%def>

<%doc>
Keeps the parts of kept fragments, which are the same in every turn, from taking registers beside
the fragments themselves.
</%doc>
<%def name="split_anew(name, depth, blocks_m, split_d)">\
#pragma unroll
        for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
            for (int k = 0; k < ${depth // 8 // split_d}; ++k) {
                STAYS_IN_LOOP(${name}[i][k]);
            }
        }
</%def>

<%doc> to[row][column] = rows · columns^T, of kept fragments or of those in local memory. </%doc>
<%def name="products(to, rows, kept, tile, depth, blocks_m, tile_n, split_d=1)">\
<%
    pitch, steps, beside = 4 * depth + 16, depth // 8 // split_d, capture(share.beside, depth // split_d * 4, split_d)
    rests = f"{to}_rests"
%>\
${share.zeros(rests, blocks_m, tile_n)}\
#pragma unroll
        for (int k = 0; k < ${steps}; ++k) {
            uint4 own[${blocks_m}], own_rest[${blocks_m}], others[${tile_n // 16}], rests[${tile_n // 16}];
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
                const uint4 whole = ${f"{rows}[i][k]" if kept else f"fragment({rows} + (warp * {blocks_m} + i) * {16 * pitch} + a_{pitch}{beside} + k * 32)"};
                own[i] = rounded4(whole);
                own_rest[i] = rest4(whole, own[i]);
            }
#pragma unroll
            for (int n = 0; n < ${tile_n // 16}; ++n) {
                const uint4 whole = fragment(${tile} + n * ${16 * pitch} + b_${pitch}${beside} + k * 32);
                others[n] = rounded4(whole);
                rests[n] = rest4(whole, others[n]);
            }
% for to_sums, left, right in ((rests, "own_rest", "others"), (to, "own", "others"), (rests, "own", "rests")):
#pragma unroll
            for (int n = 0; n < ${tile_n // 16}; ++n) {
#pragma unroll
                for (int i = 0; i < ${blocks_m}; ++i) {
                    MMA(${to_sums}[i][2 * n], ${left}[i], ${right}[n].x, ${right}[n].y);
                    MMA(${to_sums}[i][2 * n + 1], ${left}[i], ${right}[n].z, ${right}[n].w);
                }
            }
% endfor
        }
#pragma unroll
        for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
            for (int j = 0; j < ${tile_n // 8}; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    ${to}[i][j][e] += ${rests}[i][j][e];
                }
            }
        }
</%def>

<%doc> to[row][item] += scores · tile. </%doc>
<%def name="accumulate(to, scores, tile, depth, blocks_m, tile_n, split_d=1)">\
<%
    pitch, steps, part = 4 * depth + 16, tile_n // 8, depth // split_d
    wide = wide_of(part)
    items = [f"s{j}" for j in range(wide)]
    terms = (("own_rest", "above", "below"), ("own", "above_rest", "below_rest"), ("own", "above", "below"))
%>\
        {
            uint4 own[${blocks_m}][${steps}], own_rest[${blocks_m}][${steps}];
#pragma unroll
            for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
                for (int k = 0; k < ${steps}; ++k) {
                    const uint4 whole = as_uint4((float4)(${", ".join(f"{scores}[i][k][{e}]" for e in (0, 2, 1, 3))}));
                    own[i][k] = rounded4(whole);
                    own_rest[i][k] = rest4(whole, own[i][k]);
                }
            }
            __local const uchar *from = tiles + (${tile} - base) + lane % 4 * ${2 * pitch} + lane / 4 * ${4 * wide}${share.beside(part * 4, split_d)};
#pragma unroll
            for (int n = 0; n < ${part // (8 * wide)}; ++n) {
${share.zeros("added", blocks_m, 8 * wide)}\
#pragma unroll
                for (int k = 0; k < ${steps}; ++k) {
% for name, at in (("above", 0), ("below", pitch)):
                    const uint${wide} whole_${name} = *(__local const uint${wide} *)(from + k * ${8 * pitch} + ${at} + n * ${32 * wide});
                    const uint${wide} ${name} = rounded${wide}(whole_${name}), ${name}_rest = rest${wide}(whole_${name}, ${name});
% endfor
#pragma unroll
                    for (int i = 0; i < ${blocks_m}; ++i) {
% for left, first, second in terms:
% for j, item in enumerate(items):
                        MMA(added[i][${j}], ${left}[i][k], ${first}.${item}, ${second}.${item});
% endfor
% endfor
                    }
                }
#pragma unroll
                for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
                    for (int j = 0; j < ${wide}; ++j) {
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            ${to}[i][n * ${wide} + j][e] += added[i][j][e];
                        }
                    }
                }
            }
        }
</%def>

<%doc> Stores a warp's rows, of which `count` exist, by vectors; `factor` is written in i and h. </%doc>
<%def name="store(to, row, sums, depth, dim, blocks_m, row0, count, factor='', split_d=1)">\
<%
    part = depth // split_d
    wide = wide_of(part)
    beside = capture(share.beside, part, split_d)
    # items of a work-item in the blocks that lie side by side, as vectors of four
    places = [[(j, e) for e in range(2) for j in range(wide)][at : at + 4] for at in range(0, 2 * wide, 4)]
%>\
#pragma unroll
    for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int line = ${row0} + (warp * ${blocks_m} + i) * 16 + h * 8 + lane / 4;
            if (line < ${count}) {
#pragma unroll
                for (int n = 0; n < ${part // (8 * wide)}; ++n) {
% for number, vector in enumerate(places):
                    {
                        const int item = n * ${8 * wide} + lane % 4 * ${2 * wide} + ${4 * number}${beside};
                        ${f"if (item < {dim}) " if dim < depth else ""}*(__global float4 *)(${to} + line * ${row} + item) =
                            (float4)(${", ".join(f"{sums}[i][n * {wide} + {j}][2 * h + {e}]" for j, e in vector)})${factor};
                    }
% endfor
                }
            }
        }
    }
</%def>
