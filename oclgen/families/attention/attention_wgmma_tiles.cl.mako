<%doc>
Tiles, fragments and products of attention by wgmma, in the place of those of
attention_mma_tiles. Defs for other templates, no text of its own.

A tile lies in local memory as panels of 64 items: rows of 128 bytes, one for each row of the
operand, whose 16-byte chunks are exclusive-or'ed with the row modulo 8 (PTX ISA, shared memory
layout of wgmma).
</%doc>
<%doc> Copies `height` rows of a matrix whose first is `first`; rows from `count` on become zeros. </%doc>
<%def name="copy(to, source, row, first, count, height, depth, dim, work_items)">\
<%
    chunks = depth // 8
    total = height * chunks
    rounds = -(-total // work_items)
    # neighbouring work-items copy a row's chunks, and each its chunk of every `step`-th row
    step = work_items // chunks if work_items % chunks == 0 and dim == depth and total % work_items == 0 else 0
    swizzled = "lane_line % 8" if step % 8 == 0 else f"(lane_line + i * {step}) % 8"
%>\
% if step:
    if (${first} + ${height} <= ${count}) {
        const int lane_line = id / ${chunks}, chunk = id % ${chunks};
        __global const elem_t *from = ${source} + (${first} + lane_line) * ${row} + chunk * 8;
        const local_t lane_to = ${to} + chunk / 8 * ${height * 128} + lane_line * 128;
#pragma unroll
        for (int i = 0; i < ${rounds}; ++i) {
            copy_chunk(lane_to + i * ${step * 128} + (chunk % 8 ^ ${swizzled}) * 16, from, true);
            from += ${step} * ${row};
            STEP_BY_STEP(from);
        }
    } else
% endif
    {
#pragma unroll
        for (int i = 0; i < ${rounds}; ++i) {
            const int at = id + i * ${work_items}, line = at / ${chunks}, chunk = at % ${chunks};
            const bool valid = ${first} + line < ${count}${f" && chunk < {dim // 8}" if dim < depth else ""};
            ${f"if (at < {total}) " if total % work_items else ""}{
                copy_chunk(${to} + chunk / 8 * ${height * 128} + line * 128 + (chunk % 8 ^ line % 8) * 16,
                           valid ? ${source} + (${first} + line) * ${row} + chunk * 8 : ${source}, valid);
            }
        }
    }
</%def>

<%doc> Fragments of a warp's 16 rows, straight from memory: they are read once. </%doc>
<%def name="keep(name, source, row, row0, count, depth, dim)">\
    uint4 ${name}[${depth // 16}];
    {
        const int line = ${row0} + warp * 16 + lane / 4;
        __global const elem_t *from = ${source} + line * ${row} + lane % 4 * 2;
#pragma unroll
        for (int k = 0; k < ${depth // 16}; ++k) {
% for part, (below, right) in {"x": (0, 0), "y": (8, 0), "z": (0, 8), "w": (8, 8)}.items():
            ${name}[k].${part} = line + ${below} < ${count}${f" && k * 16 + {right} < {dim}" if dim < depth else ""} ? *(__global const uint *)(from + ${below} * ${row} + k * 16 + ${right}) : 0;
% endfor
        }
    }
</%def>

<%doc> Writes scores, whatever stood there before. </%doc>
<%def name="set_scores(to, rows, tile, depth, tile_n)">\
        SET_SCORES((float *)${to}, ${rows}[0], ${tile});
#pragma unroll
        for (int k = 1; k < ${depth // 16}; ++k) {
            ADD_SCORES((float *)${to}, ${rows}[k], ${tile} + k / 4 * ${tile_n * 128} + k % 4 * 32);
        }
</%def>

<%doc> Two products, each (to, rows, tile, depth), of which the first is waited for. </%doc>
<%def name="both_products(first, second, tile_n)">\
        MULTIPLY_BEGIN();
${set_scores(*first, tile_n)}\
        MULTIPLY_SEND();
${set_scores(*second, tile_n)}\
        MULTIPLY_SEND();
        MULTIPLY_AWAIT(1);
        SETTLE_SCORES((float *)${first[0]});
</%def>

<%doc> to += scores · tile, not waited for; `add` names the units' macro for the width of `to`. </%doc>
<%def name="begin_to_accumulate(to, scores, tile, tile_n, add='ADD_VALUES')">\
${round_scores(f"{scores}_pairs", scores, tile_n)}\
        MULTIPLY_BEGIN();
${add_rows(to, f"{scores}_pairs", tile, tile_n, add)}\
        MULTIPLY_SEND();
</%def>

<%def name="round_scores(pairs, scores, tile_n, declare=True)">\
% if declare:
        uint4 ${pairs}[${tile_n // 16}];
% endif
#pragma unroll
        for (int k = 0; k < ${tile_n // 16}; ++k) {
% for part, (block, item) in {"x": (0, 0), "y": (0, 2), "z": (1, 0), "w": (1, 2)}.items():
            ${pairs}[k].${part} = pair_of(${scores}[0][2 * k${f" + {block}" if block else ""}][${item}], ${scores}[0][2 * k${f" + {block}" if block else ""}][${item + 1}]);
% endfor
        }
</%def>

<%def name="add_rows(to, pairs, tile, tile_n, add)">\
#pragma unroll
        for (int k = 0; k < ${tile_n // 16}; ++k) {
            ${add}((float *)${to}, ${pairs}[k], ${tile} + k * 2048);
        }
</%def>
