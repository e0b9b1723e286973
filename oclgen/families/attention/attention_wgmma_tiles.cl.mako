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

<%doc>
Writes scores, whatever stood there before, of rows in registers or of `tile_m` rows in local memory.
</%doc>
<%def name="set_scores(to, rows, tile, depth, tile_n, tile_m=0)">\
<% row = f"OWN_AT({rows}) + k / 4 * {tile_m * 8} + k % 4 * 2" if tile_m else f"{rows}[k]" %>\
        SET_SCORES((float *)${to}, ${f"OWN_AT({rows})" if tile_m else f"{rows}[0]"}, SCORES_AT(${tile}));
#pragma unroll
        for (int k = 1; k < ${depth // 16}; ++k) {
            ADD_SCORES((float *)${to}, ${row}, SCORES_AT(${tile}) + k / 4 * ${tile_n * 8} + k % 4 * 2);
        }
</%def>

<%doc> Rounds scores to pairs of the operands' dtype, a fragment of 16 columns each. </%doc>
<%def name="round_scores(pairs, scores, tile_n)">\
#pragma unroll
        for (int k = 0; k < ${tile_n // 16}; ++k) {
% for part, (block, item) in {"x": (0, 0), "y": (0, 2), "z": (1, 0), "w": (1, 2)}.items():
            ${pairs}[k].${part} = pair_of(${scores}[0][2 * k${f" + {block}" if block else ""}][${item}], ${scores}[0][2 * k${f" + {block}" if block else ""}][${item + 1}]);
% endfor
        }
</%def>

<%doc> to += pairs · tile; `add` names the units' macro for the width of `to`. </%doc>
<%def name="add_rows(to, pairs, tile, tile_n, add)">\
#pragma unroll
        for (int k = 0; k < ${tile_n // 16}; ++k) {
            ${add}((float *)${to}, ${pairs}[k], VALUES_AT(${tile}) + k * 128);
        }
</%def>

<%doc>
The block of rows that a work-group computes, of `blocks`, and its line: the head, counted through all batches.
Where a mask gives rows more keys than others, first come the first blocks of SECTION heads, then their
second ones: the work-groups that end last are short, and the heads' tiles still fit a cache.
</%doc>
<%def name="place(seen)">\
<% SECTION = 16 %>\
    const int blocks = get_num_groups(0);
% if seen.causal:
    const int lines = get_num_groups(1), group = (int)get_group_id(1) * blocks + (int)get_group_id(0);
    const int line0 = group / (${SECTION} * blocks) * ${SECTION}, section = min(${SECTION}, lines - line0);
    const int block = group % (${SECTION} * blocks) / section, line_of_all = line0 + group % (${SECTION} * blocks) % section;
% else:
    const int block = get_group_id(0), line_of_all = get_group_id(1);
% endif
</%def>

<%doc> A work-group's own rows: fragments in registers, or their address in local memory, `at` behind `base`. </%doc>
<%def name="own(name, source, row, row0, count, depth, dim, at, kept, warps)">\
% if kept:
${keep(name, source, row, row0, count, depth, dim)}\
% else:
    const uint ${name} = base + ${at}${" + warp / 4 * 8192" if warps > 4 else ""};
${copy(f"(base + {at})", source, row, row0, count, 16 * warps, depth, dim, 32 * warps)}\
% endif
</%def>

<%doc>
Stores a warp's rows, of which `count` exist, a chunk of 16 bytes a lane: the four lanes of a row hand each
other their pairs of four blocks of eight items. `factor` is written in h.
</%doc>
<%def name="store(to, row, sums, dim, row0, count, factor='')">\
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int line = ${row0} + warp * 16 + h * 8 + lane / 4;
#pragma unroll
        for (int j = 0; j < ${-(-dim // 32)}; ++j) {
            uint pair[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pair[i] = pair_of(${sums}[0][4 * j + i][2 * h]${factor}, ${sums}[0][4 * j + i][2 * h + 1]${factor});
            }
            const bool odd = lane & 1, high = lane & 2;
            const uint near0 = pair_from_lane(odd ? pair[0] : pair[1], 1), near1 = pair_from_lane(odd ? pair[2] : pair[3], 1);
            const uint2 low_half = odd ? (uint2)(near0, pair[1]) : (uint2)(pair[0], near0);
            const uint2 high_half = odd ? (uint2)(near1, pair[3]) : (uint2)(pair[2], near1);
            const uint2 sent = high ? low_half : high_half;
            const uint2 far = (uint2)(pair_from_lane(sent.x, 2), pair_from_lane(sent.y, 2));
            if (line < ${count}${f" && j * 32 + lane % 4 * 8 < {dim}" if dim % 32 else ""}) {
                *(__global uint4 *)(${to} + line * ${row} + j * 32 + lane % 4 * 8) = high ? (uint4)(far, high_half) : (uint4)(low_half, far);
            }
        }
    }
</%def>
