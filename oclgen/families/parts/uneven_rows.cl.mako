<%doc>
Copies of operands whose rows are no multiple of 16 bytes, for the kernel of `gemm_mma`: `cp.async`
of 8 or 4 bytes, as all rows allow. Neighbouring work-items copy neighbouring pieces, so that a warp
reads memory, and writes banks, without gaps.

Rows of an odd number of 16-bit elements begin at a word or in its middle. Then the words around a
row are copied as they lie, one more than a tile's row has, and when they have arrived each row that
begins in a middle is shifted by half a word, by one work-item: its loads and stores of chunks meet
no bank twice, since rows are swizzled. So copies stay asynchronous whatever the alignment.

Defs for another template, no text of its own; `side` is "a" or "b", `of` its `Pieces`.
</%doc>
<%!
    from oclgen.families.parts.expressions import plus

    BATCH = 4  # chunks of a row that a work-item has in registers while it shifts them
%>\
<%def name="functions(elem_bytes)">\
<% item = {2: "ushort", 4: "uint"}[elem_bytes] %>\
% for size in sorted({of.bytes for of in pieces.values() if of.may_fail}):
/* copies the first `valid` elements of a piece that is not aligned and zeros behind them, at once */
void copy_elements${size}(__local uchar *to, __global const elem_t *from, const int valid)
{
    for (int i = 0; i < ${size // elem_bytes}; ++i) {
        ((__local ${item} *)to)[i] = i < valid ? ((__global const ${item} *)from)[i] : 0;
    }
}

% endfor
% for side, of in pieces.items():
% if of.halved:
% if loop.first or not pieces["a"].halved:
/* whether an element lies in the second half of a word */
#define SKEW(p) ((int)((size_t)(p) / 2) & 1)
#define SECOND_HALVES(low, high) as_uint((ushort2)(as_ushort2(low).y, as_ushort2(high).x))

% endif
/* shifts a row of tile ${side} by half a word; `beyond` is the word behind it */
void shift_${side}(__local uchar *tile, const int row, const uint beyond)
{
<% chunks = of.layout.row_bytes // 16 %>\
    const int swizzle = ${of.layout.swizzle("row")};
    __local uchar *line = tile + row * ${of.layout.row_bytes};
#define CHUNK(i) *(__local uint4 *)(line + ((i) ^ swizzle) * 16)
% for first in range(0, chunks, BATCH):
<% batch = range(first, min(first + BATCH, chunks)) %>\
    {
% for i in batch:
        const uint4 word${i} = CHUNK(${i});
% endfor
        const uint next = ${f"*(__local uint *)&CHUNK({batch[-1] + 1})" if batch[-1] + 1 < chunks else "beyond"};
% for i in batch:
<%
    behind = f"word{i + 1}.x" if i != batch[-1] else "next"
    halves = ", ".join(f"SECOND_HALVES(word{i}.{low}, {f'word{i}.{high}' if high else behind})" for low, high in zip("xyzw", ("y", "z", "w", "")))
%>\
        CHUNK(${i}) = (uint4)(${halves});
% endfor
    }
% endfor
#undef CHUNK
}

% endif
% endfor
</%def>

<%doc> Where this work-item's pieces come from and go to; first is the tile's row or column. </%doc>
<%def name="places(side, of, first)">\
<%
    lay, start = of.layout, a.bytes if side == "b" else 0
    skewed = f" - skew_{side}" if of.halved else ""
    piece = f"piece_{side}{f' * {of.elements}' if of.elements > 1 else ''}{skewed}"
%>\
% if of.may_fail:
    const bool aligned_${side} = IS_ALIGNED(${side}, ld_${side}, ${lay.elem_bytes}, ${of.elements});
% endif
    const int row_${side} = id / ${of.per_row}, piece_${side} = id % ${of.per_row};
% for turn in of.turns:
    const uint to_${side}${turn} = row_${side} * ${lay.row_bytes} + (piece_${side} / ${of.per_chunk} ^ ${lay.swizzle(f"(row_{side} + {turn})" if turn else f"row_{side}")}) * 16
        + piece_${side} % ${of.per_chunk} * ${of.bytes}${plus(start)};
% endfor
% if lay.along_k:
    const int x_${side} = ${first} + row_${side};
% if of.halved:
    const int skew_${side} = SKEW(${side} + x_${side} * (long)ld_${side} + k_first);
% endif
    int k_${side} = k_first + ${piece};
    __global const elem_t *from_${side} = ${side} + x_${side} * (long)ld_${side} + k_${side};
    const long step_${side} = ${tile_k};
% else:
    int k_${side} = k_first + row_${side} % ${tile_k};
% if of.halved:
    const int skew_${side} = SKEW(${side} + k_${side} * (long)ld_${side} + ${first});
% endif
    const int x_${side} = ${first} + row_${side} / ${tile_k} * ${lay.panel} + ${piece};
    __global const elem_t *from_${side} = ${side} + k_${side} * (long)ld_${side} + x_${side};
    const long step_${side} = ${tile_k} * (long)ld_${side};
% endif
% if of.halved:
${ends(side, of, first)}\
% endif
</%def>

<%doc> The words in which rows end that are shifted: their places, and how much of them is there. </%doc>
<%def name="ends(side, of, first)">\
<%
    lay = of.layout
    start = a.bytes + b.bytes + (4 * pieces["a"].rows if side == "b" and "a" in pieces else 0)
    width = tile_k if lay.along_k else lay.panel
%>\
    const uint to_end_${side} = id * 4${plus(start)};
% for i in range(-(-of.rows // of.work_items)):
<% row, end = f"(id + {i * of.work_items})" if i else "id", f"end_{side}{i}" %>\
% if lay.along_k:
    const int x_${end} = ${first} + ${row};
    int k_${end} = k_first + ${width - 1};
    __global const elem_t *${end} = ${side} + x_${end} * (long)ld_${side} + k_first;
    const int some_${end} = SKEW(${end})${f" && x_{end} < {'m' if side == 'a' else 'n'}" if text.edge(side) else ""} ? 2 : 0;
% else:
    const int x_${end} = ${first} + ${row} / ${tile_k} * ${lay.panel};
    int k_${end} = k_first + ${row} % ${tile_k};
    __global const elem_t *${end} = ${side} + k_${end} * (long)ld_${side} + x_${end};
    const int some_${end} = SKEW(${end}) ? clamp(${"m" if side == "a" else "n"} - x_${end} - ${width - 1}, 0, 2) : 0;
% endif
    ${end} += ${width} - SKEW(${end});
% endfor
    // rows that begin in the middle of a word: every other one, all or none
    const bool odd_${side} = ld_${side} & 1, skewed_${side} = SKEW(${side} + ${f"{first} * (long)ld_{side} + k_first" if lay.along_k else f"k_first * (long)ld_{side} + {first}"});
    const int shifted_${side} = odd_${side} ? !skewed_${side} : skewed_${side} ? 0 : ${of.rows};
</%def>

<%doc> Copies this work-item's pieces of the next tile to the stage at `slot`. </%doc>
<%def name="copy(side, of, slot, edge_k)">\
<% lay = of.layout %>\
% for aligned in (True, False)[:1 + of.may_fail]:
            ${f"if (aligned_{side}) " if of.may_fail and aligned else "" if aligned else "else "}{
% for i in range(of.copies):
<%
    pointer, valid = text.chunk(side, i)
    to = f" + {slot} + to_{side}{of.turn(i)}{plus(i * of.work_items * of.bytes)}"
%>\
% if aligned:
                copy_piece${of.bytes}(base${to}, ${pointer}, ${valid});
% else:
                copy_elements${of.bytes}(tiles${to}, ${pointer}, ${valid});
% endif
% endfor
            }
% endfor
% for i in range(-(-of.rows // of.work_items)):
<%
    end, guarded = f"end_{side}{i}", (i + 1) * of.work_items > of.rows
    valid = f"clamp(k_last - k_{end}, 0, some_{end})" if lay.along_k else f"k_{end} < k_last ? some_{end} : 0"
%>\
            ${f"if (id < {of.rows - i * of.work_items}) " if guarded else ""}{
                copy_piece4(base + ${slot} + to_end_${side}${plus(4 * i * of.work_items)}, ${end}, ${valid});
            }
            k_${end} += ${tile_k};
            ${end} += step_${side};
% endfor
% if edge_k:
            k_${side} += ${tile_k};
% endif
</%def>

<%doc> Shifts the rows of the tiles that have arrived; the first work-items those of a, the last those of b. </%doc>
<%def name="shift(tiles_bytes)">\
<% begins = {"a": 0, "b": a.bytes} %>\
% for side, of in pieces.items():
% if of.halved:
<%
    worker = "id" if side == "a" else f"({of.work_items - 1} - id)"
    start = tiles_bytes + (4 * pieces["a"].rows if side == "b" and "a" in pieces else 0)
%>\
        for (int row = shifted_${side} + (${worker} << odd_${side}); row < ${of.rows}; row += ${of.work_items} << odd_${side}) {
            __local uchar *stage = tiles + reading;
            shift_${side}(stage${plus(begins[side])}, row, *(__local uint *)(stage + ${start} + row * 4));
        }
% endif
% endfor
        SHOW_TILE();
        barrier(CLK_LOCAL_MEM_FENCE);
</%def>
