<%doc>
What `packed_mma` computes of a part of a tile.

scales_of(raws, to)            declares `scale` of each row of x and its `inverse`, of both columns of sums
sums_of_x(ones, pairs, i, to)  sums of x of span i, times what zeros of the weights do not multiply later
multiply(pairs)                adds the products of all spans to `acc`, times their numbers

raws   names of arrays of x as it was loaded
pairs  array of the pieces of x, of the part
ones   array of the sums of x, or of what sums of quants begin with
i      span of the part: a block of sums
to     indentation
</%doc>
<%!
    from oclgen.families.packed.packed_mma_text import pair
    from oclgen.families.parts.expressions import plus
%>\
<%def name="scales_of(raws, to)">\
${to}float scale[${blocks_m}], inverse[${blocks_m}][2];
#pragma unroll
${to}for (int c = 0; c < ${blocks_m}; ++c) {
${to}    float most = 0.0f;
% for raw in raws:
#pragma unroll
${to}    for (int s = 0; s < ${len(text.x_places)}; ++s) {
${to}        const float4 size = fabs(${raw}[c][s]);
${to}        most = fmax(most, fmax(fmax(size.x, size.y), fmax(size.z, size.w)));
${to}    }
% endfor
${to}    most = fmax(most, from_lane(most, 1));
${to}    most = fmax(most, from_lane(most, 2));
${to}    // powers of two: exponents of the largest of a row become 14, one below fp16's last
${to}    const uint power = max(as_uint(most) & 0x7f800000u, 15u << 23);
${to}    scale[c] = as_float((268u << 23) - power);
${to}    const float back = as_float(power - (14u << 23));
${to}    for (int e = 0; e < 2; ++e) inverse[c][e] = from_lane(back, lane ^ (8 * part + 4 * e));
${to}}
</%def>\
<%def name="sums_of_x(ones, pairs, i, to)">\
<%
    pieces, group_steps = text.pieces, text.steps_of_group
    back = " * inverse[c][e]" if text.is_scaled and rounds > 1 else ""
%>\
#pragma unroll
${to}for (int c = 0; c < ${blocks_m}; ++c) {
${to}    float sum[${text.chains}][4];
${to}    for (int e = 0; e < 4; ++e) ${text.zero("sum[{}][e]")}
% for j in range(group_steps):
% for piece in reversed(range(pieces)):
${to}    MMA(sum[${text.chain(j, piece)}], (uint4)(${pair(text.one)}), ${pairs}[c][${i * group_steps + j}][${piece}][0], ${pairs}[c][${i * group_steps + j}][${piece}][1]);
% endfor
% endfor
${to}    for (int e = 0; e < 2; ++e) ${ones}[c][e] = ${"" if text.has_zeros else f"-{text.excess}.0f * "}(${text.added("sum[{}][e]")})${back};
${to}}
</%def>\
<%def name="multiply(pairs)">\
<%
    form, stripe, width, is_kept = tile.format, tile.stripes.text, tile.width, rounds == 1
    entries, every, pieces, groups = text.entries, text.every, text.pieces, tile.groups
    per_block, group_steps, has_numbers = text.per_block, text.steps_of_group, form.group != 0
    back = " * inverse[c][e % 2]" if text.is_scaled and not is_kept else ""
%>\
% if not is_direct:
            __local const uchar *first = tile + line * ${slots.stride} + ${"p" if per_block == 1 else f"p / {per_block}"} * ${text.part_bytes};
% endif
% if slots.is_skewed:
            const int skew_of = (n0 + line) * ${row_bytes} + ${"shared_begin" if slots.sharing else f"(round * {shares} + {share}) * {tile.bytes}"};
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
% if text.is_subtracted:
#pragma unroll
                for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
                    for (int c = 0; c < ${blocks_m}; ++c) {
% for j in range(group_steps):
                        MMA_HERE(sum[r][c][0], (uint4)(${pair(text.minus_excess)}), ${pairs}[c][${i * group_steps + j}][0][0], ${pairs}[c][${i * group_steps + j}][0][1]);
% endfor
                    }
% endif
% for place, (step, group) in enumerate(span):
<%
    skip = plus(step.block * form.block_bytes)
    at = i * group_steps + text.x_of(place % group_steps)
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
% if is_direct:
                        const uint bytes = ${text.held(step)};
% else:
                        __local const uchar *p = first + (r * 16 + row * 8) * ${slots.stride}${skip}${f" + (skew_of + (r * 16 + row * 8) * {row_bytes} & {width - 1})" if slots.is_skewed else ""};
                        const uint bytes = ${f"BYTES(p{plus(stripe.quants)} + o)" if text.word_at(step) == "BYTES" else f"WORD(p{plus(stripe.quants)} + o + {tile.stretch} * part)"};
% endif
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
                        __local const uchar *block = first + (r * 16 + h * 8) * ${slots.stride}${block_skip}${f" + (skew_of + (r * 16 + h * 8) * {row_bytes} & {width - 1})" if slots.is_skewed else ""};
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
                                acc[r][c][e] = (${text.added("sum[r][c][{}][e]")})${back} * number.x + acc[r][c][e];
% else:
                                acc[r][c][e] += (${text.added("sum[r][c][{}][e]")})${back};
% endif
% if text.has_zeros:
                                acc[r][c][e] = ${text.minus}number.y * ${ones}[c][e % 2] + acc[r][c][e];
% endif
                            }
                    }
            }
% endfor
</%def>\
