<%doc>
What `packed_mma` reads: x to registers, entries of `scales`, and weights to local memory.

`to` is the indentation of a def's lines; the other values are those of `packed_mma`.

load_x(into, at, to)      x of a part from place `at` on, to the array `into`
fetch(first_n, at, to)    entries of `scales` of a tile: of the outputs from first_n on, weights from `at` on
copy(slot, to)            the tile of copy_n and copy_round to a slot; both go on to the next tile
take(to)                  the same tile to the registers `next` and, of blocks' numbers, `heads`
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
%>\
<%def name="load_x(into, at, to)">\
<% places, raw = text.x_places, text.raw %>\
${to}if (aligned) {
% for c in range(blocks_m):
% for s, place in enumerate(places):
${to}    LOAD_X(${into}[${c}][${s}], x_${c} + ${at}${plus(place)}, ${at}${plus(place)} + ${text.lane_x} < ends_${c});
% endfor
% endfor
${to}} else {
% for c in range(blocks_m):
% for s, place in enumerate(places):
${to}    ${into}[${c}][${s}] = ${at}${plus(place)} + ${text.lane_x} < ends_${c} ? ${f"as_{raw}" if elem_bytes == 2 else ""}(vload${text.items}(0, x_${c} + ${at}${plus(place)})) : (${raw})(0);
% endfor
% endfor
${to}}
</%def>\
<%def name="fetch(first_n, at, to)">\
<% form, entries, every = tile.format, text.entries, text.every %>\
#pragma unroll
${to}for (int i = 0; i < ${-(-entries // 32)}; ++i) {
${to}    const int at = lane + 32 * i, group = min((${at} + at / ${tile_n} * ${every}) / ${form.group}, ${k // form.group - 1});
${to}    fetched[i] = numbers(0, 0, scales + ${"2 * " if form.zeros else ""}(group * (long)n + min(${first_n} + at % ${tile_n}, n - 1)));
${to}}
</%def>\
<%def name="copy(slot, to)">\
<% lanes, width, slot_bytes, rows_at_once = tile.lanes, tile.width, slots.slot_bytes, text.rows_at_once %>\
${to}const int begin = ${f"(copy_round * {shares} + {share})" if rounds > 1 else share} * ${tile.bytes};
${to}__global const uchar *rows = from + copy_n * ${row_bytes}L${"" if slots.is_skewed else " + begin"};
${to}const local_t place = base + to + ${slot} * ${slot_bytes};
#pragma unroll
${to}for (int i = 0; i < ${tile_n // rows_at_once}; ++i) {
% if slots.is_skewed:
${to}    const int at = begin - ((copy_n + copied + i * ${rows_at_once}) * ${row_bytes} + begin & ${width - 1});
${to}    __global const uchar *row = rows + at + i * ${rows_at_once * row_bytes};
${to}    const int left = copy_n + copied + i * ${rows_at_once} < n ? ${row_bytes} - at - byte_0 : 0;
% else:
${to}    __global const uchar *row = rows + i * ${rows_at_once * row_bytes};
${to}    const int left = copy_n + copied + i * ${rows_at_once} < n ? ${row_bytes} - begin - byte_0 : 0;
% endif
#pragma unroll
${to}    for (int byte = 0; byte < ${width * tile.copies}; byte += ${width * lanes}) {
${to}        ${f"if (byte + byte_0 < {width * tile.copies}) " if tile.copies % lanes else ""}COPY_BYTES(place + i * ${rows_at_once * slots.stride} + byte, row + byte, byte < left ? ${width} : 0);
${to}    }
${to}}
${to}COPY_COMMIT();
${went_on(to)}\
</%def>\
<%def name="went_on(to)">\
% if rounds == 1:
${to}copy_n += further;
% else:
${to}copy_round = copy_round == ${rounds - 1} ? 0 : copy_round + 1;
${to}copy_n += copy_round == 0 ? further : 0;
% endif
</%def>\
<%def name="take(to)">\
<% form = tile.format %>\
${to}const int begin = ${f"(copy_round * {shares} + {share})" if rounds > 1 else share} * ${tile.bytes};
${to}__global const uchar *rows = from + copy_n * ${row_bytes}L + begin;
#pragma unroll
${to}for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
${to}    for (int row = 0; row < 2; ++row) {
${to}        __global const uchar *its = rows + (r * 16 + row * 8) * ${row_bytes};
${to}        const int left = copy_n + line + r * 16 + row * 8 < n ? ${row_bytes} - begin - 8 * part : 0;
% for piece in range(tile.pieces):
${to}        LOAD_PAIR(next[r][row][${piece}], its + ${tile.piece_at(piece)}, ${tile.piece_at(piece)} < left);
% endfor
${to}    }
% for i in range(text.heads):
<% at = f"(lane + {32 * i})" %>\
${to}LOAD_FOUR(heads[${i}], w + offset_w + (copy_n + ${at} % ${tile_n}) * ${row_bytes}L + begin + ${at} / ${2 * tile_n} * ${form.block_bytes},
${to}          copy_n + ${at} % ${tile_n} < n && begin + ${at} / ${2 * tile_n} * ${form.block_bytes} < ${row_bytes});
% endfor
${went_on(to)}\
</%def>\
