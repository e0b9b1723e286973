<%doc>
What the kernels of attention_lanes are made of: rows turned, tiles, products, masks and dropout.

preamble    typedef of elem_t and the macros LOADn and STOREn
direction, vec, fold, vectors, sums, masked   as in attention_lanes
load_part, philox, kept     as in attention_tiles
power       text of attention_power_of_two.cl.mako
dim, dim_v  items of a row of q and k, and of v
rows_at_once  rows of results whose sums are in registers at once, and of the last ones
parts_of    by the items of a row, part by part: the first and the number of the vectors whose sums are there, and the
            items of the last one
place       where other rows are: local, where they are copied to as fp32, or global
line_items  items of a line of a cache
items       as `items_of_row`
is_plain    scores of the forward pass are what the products are: no mask, and all keys seen
</%doc>
<%
    vf, vi, wf = f"float{vec}", f"int{vec}", f"float{wide}"
    lanes = ", ".join(map(str, range(vec)))
    is_forward, height = direction == "fwd", vec * vectors
    def others(place):
        kind = "__local const float" if place == "local" else "__global const elem_t"
        return f"{kind} *other, const {'int' if place == 'local' else 'long'} pitch, const int count"
    highest = f", {vf} *most" if is_plain else ""
    def item(m):
        """Some items of a row, for all own rows."""
        start = f"row{m} + i" if place == "global" else f"other + {m} * pitch + i"
        load = f"LOAD{fold}({start})" if place == "global" else f"vload{fold}(0, {start})"
        if fold > 1:
            return f"{load}.s{'0123'[:fold] * vec}"
        return load if place == "global" else f"*({start})"
    line_end = f"line + {line_items}"
    if dim % line_items or dim_v % line_items:
        line_end = f"min({line_end}, size)"
    later = ", __global const elem_t *later, const long later_pitch" if is_forward and place == "global" else ""
%>\
<%def name="add_rows(name, to, place, rows, width, last, step, row_step, shrinks)">\
<% items_of = [wide] * (width - 1) + [last if place == "global" else wide] %>\

// sums[row][item] += the products of ${rows} rows of factors, one for each of `count` other rows, with these
void ${name}_${rows}_${width}_${last}(__${to} float *sums, const int sum_pitch, __local const float *factors, ${others(place)}${", const float *shrink" if shrinks else ""})
{
% for m in range(rows):
% for c in range(width):
    ${wf} sum${m}_${c} = vload${wide}(${c}, sums + ${m} * sum_pitch)${f" * shrink[{m}]" if shrinks else ""};
% endfor
% endfor
    for (int row = 0; row < count; ++row) {
% for c in range(width):
        const ${wf} items${c} = ${items(wide, items_of[c], f"other + row * pitch + {c * wide}")};
% endfor
% for m in range(rows):
        const float factor${m} = factors[${step} + ${m}${row_step}];
% for c in range(width):
        sum${m}_${c} = factor${m} * items${c} + sum${m}_${c};
% endfor
% endfor
    }
% for m in range(rows):
% for c in range(width):
    vstore${wide}(sum${m}_${c}, ${c}, sums + ${m} * sum_pitch);
% endfor
% endfor
}
</%def>\
<%def name="add_all(name, to, place, parts, step, row_step, shrinks)">\
% for width, last in dict.fromkeys((width, last) for _, width, last in parts):
% for rows in dict.fromkeys(rows_at_once):
${add_rows(name, to, place, rows, width, last, step, row_step, shrinks)}\
% endfor
% endfor

// the same for any number of rows. All of them take a few vectors of items first, which stay in the first cache
void ${name}(
    __${to} float *sums, const int sum_pitch, const int rows, __local const float *factors, ${others(place)}${", const float *shrink" if shrinks else ""})
{
% for first, width, last in parts:
    for (int row = 0; row < rows;) {
        __${to} float *to = sums + row * sum_pitch + ${first * wide};
<% call = f"(to, sum_pitch, factors + row{row_step}, other + {first * wide}, pitch, count{', shrink + row' if shrinks else ''})" %>\
        if (rows - row > ${rows_at_once[1]}) {
            ${name}_${rows_at_once[0]}_${width}_${last}${call};
            row += ${rows_at_once[0]};
        } else {
            ${name}_${rows_at_once[1]}_${width}_${last}${call};
            row += ${rows_at_once[1]};
        }
    }
% endfor
}
</%def>\
<%def name="by_width(name, arguments)">\
% for width in range(vectors, 0, -1):
    ${"} else " if width < vectors else ""}${f"if (width == {width}) " if width > 1 else ""}{
        ${name}${width}(${arguments});
% endfor
    }
</%def>\
${preamble}
// scores are powers of 2
#define LOG2_E 1.44269504f
#define LANES ((${vi})(${lanes}))
// a row's number, of the sums of its items that lie side by side
#define FOLD2(v) ((v).even + (v).odd)
#define FOLD(v) ${{1: "(v)", 2: "FOLD2(v)", 4: "FOLD2(FOLD2(v))"}[fold]}

${load_part}
${power}
% if fold == 1:
<%
    def picked(picks):
        """Places of two vectors, those of the second counted on from the first's: some of each 16 bytes of both."""
        return ", ".join(str(first + pick % 4 + pick // 4 * vec) for first in range(0, vec, 4) for pick in picks)
    def quarters(odd):
        """Places of every other 16 bytes, from the first or second on, of one vector and then of the other."""
        return ", ".join(str(first + i) for first in range(4 * odd, 2 * vec, 8) for i in range(4))
%>\
#define LOW(a, b) __builtin_shufflevector(a, b, ${picked((0, 4, 1, 5))})
#define HIGH(a, b) __builtin_shufflevector(a, b, ${picked((2, 6, 3, 7))})
#define LOW2(a, b) __builtin_shufflevector(a, b, ${picked((0, 1, 4, 5))})
#define HIGH2(a, b) __builtin_shufflevector(a, b, ${picked((2, 3, 6, 7))})
% if vec > 4:
#define EVEN(a, b) __builtin_shufflevector(a, b, ${quarters(0)})
#define ODD(a, b) __builtin_shufflevector(a, b, ${quarters(1)})
% endif

// part[i] = lane i of each: 4 x 4 within 16 bytes, then these as one
void turn(${vf} *part)
{
% for q in range(0, vec, 4):
    const ${vf} a${q} = LOW(part[${q}], part[${q + 1}]), b${q} = LOW(part[${q + 2}], part[${q + 3}]);
    const ${vf} c${q} = HIGH(part[${q}], part[${q + 1}]), d${q} = HIGH(part[${q + 2}], part[${q + 3}]);
    const ${vf} t${q} = LOW2(a${q}, b${q}), t${q + 1} = HIGH2(a${q}, b${q});
    const ${vf} t${q + 2} = LOW2(c${q}, d${q}), t${q + 3} = HIGH2(c${q}, d${q});
% endfor
% for i in range(4):
% if vec == 4:
    part[${i}] = t${i};
% elif vec == 8:
    part[${i}] = EVEN(t${i}, t${i + 4});
    part[${i + 4}] = ODD(t${i}, t${i + 4});
% else:
    const ${vf} even${i} = EVEN(t${i}, t${i + 4}), even${i + 8} = EVEN(t${i + 8}, t${i + 12});
    const ${vf} odd${i} = ODD(t${i}, t${i + 4}), odd${i + 8} = ODD(t${i + 8}, t${i + 12});
    part[${i}] = EVEN(even${i}, even${i + 8});
    part[${i + 4}] = EVEN(odd${i}, odd${i + 8});
    part[${i + 8}] = ODD(even${i}, even${i + 8});
    part[${i + 12}] = ODD(odd${i}, odd${i + 8});
% endif
% endfor
}
% endif

% if fold == 1:
// item i of ${vec} rows of `size`, times a factor, becomes vector i
% else:
// ${fold} items of a row lie side by side in a vector, those of ${vec} rows one after the other
% endif
void turn_in(__local ${wf} *to, __global const elem_t *from, const long *rows, const int size, const float factor)
{
    int c = 0;
% if fold == 1:
    for (; c + ${vec} <= size; c += ${vec}) {
        ${vf} part[${vec}];
% for lane in range(vec):
        part[${lane}] = LOAD${vec}(from + rows[${lane}] + c) * factor;
% endfor
        turn(part);
% for lane in range(vec):
        to[c + ${lane}] = part[${lane}];
% endfor
    }
% endif
    for (; c < size; c += ${fold}) {
        for (int lane = 0; lane < ${vec}; ++lane) {
% if fold == 1:
            ((__local float *)(to + c))[lane] = LOAD1(from + rows[lane] + c) * factor;
% else:
            vstore${fold}(LOAD${fold}(from + rows[lane] + c) * factor, c / ${fold} * ${vec} + lane, (__local float *)to);
% endif
        }
    }
}

% if place == "local" or direction == "bwd":
void load_row(__local ${wf} *to, __global const elem_t *row, const int size)
{
    for (int c = 0; c < size; c += ${wide}) {
        *to++ = load_part(row + c, size - c);
    }
}

// `all` rows, of which those past `count` are the last one again
void load_tile(
    __local ${wf} *tile, __global const elem_t *rows, const long pitch, const int count, const int all, const int size)
{
    for (int row = 0; row < all; ++row) {
        load_row(tile + row * ((size + ${wide - 1}) / ${wide}), rows + min(row, count - 1) * pitch, size);
    }
}
% endif

% if place == "global":
<%include file="ask_for.cl.mako"/>
% endif
% for width in range(1, vectors + 1):
// to[other row][vector] = the products of `sums` other rows, of which `count` are left, with ${width} vectors of own
// rows, of `size` items each
% if is_plain:
// most[vector] = the highest of them, and of itself
% endif
% if place == "global":
// Asks for the rows of the next call${", and for those of `later` if it is not 0" if is_forward else ""}.
% endif
void scores${width}(
    __local ${vf} *to, ${others(place)}, __local const ${wf} *own, const int size${highest}${later})
{
% if place == "global":
% for m in range(sums):
    __global const elem_t *row${m} = other + min(${m}, count - 1) * pitch;
% endfor
% endif
% for m in range(sums):
    ${wf} ${", ".join(f"sum{m}_{v} = 0.0f" for v in range(width))};
% endfor
% if place == "global":
    for (int line = 0; line < size; line += ${line_items}) {
% for m in range(sums):
    ASK_FOR(row${m} + ${sums} * pitch + line, 3);
% endfor
% if is_forward:
    if (later) {
% for m in range(sums):
        ASK_FOR(later + ${m} * later_pitch + line, 2);
% endfor
    }
% endif
    for (int i = line; i < ${line_end}; i += ${fold}) {
% else:
    for (int i = 0; i < size; i += ${fold}) {
% endif
% for v in range(width):
        const ${wf} own${v} = own[${"i" if fold == 1 else f"(i + {v} * size) / {fold}"}${f" + {v} * size" if v and fold == 1 else ""}];
% endfor
% for m in range(sums):
        const ${"float" if fold == 1 else wf} other${m} = ${item(m)};
% for v in range(width):
        sum${m}_${v} = other${m} * own${v} + sum${m}_${v};
% endfor
% endfor
    }
% if place == "global":
    }
% endif
% for v in range(width):
% if is_plain:
    ${vf} most${v} = most[${v}];
% endif
% for m in range(sums):
    to[${m * vectors + v}] = FOLD(sum${m}_${v});
% if is_plain:
    most${v} = select(most${v}, to[${m * vectors + v}], to[${m * vectors + v}] > most${v});  // one instruction, which fmax is not
% endif
% endfor
% if is_plain:
    most[${v}] = most${v};
% endif
% endfor
}

% endfor
void scores(const int width, __local ${vf} *to, ${others(place)}, __local const ${wf} *own, const int size${highest}${later})
{
${by_width("scores", f"to, other, pitch, count, own, size{', most' if is_plain else ''}{', later, later_pitch' if later else ''}")}\
}
% for size, parts in parts_of.items():
${add_all(f"add_{size}", "local", place, parts, f"row * {height}", "", is_forward)}\
% endfor
% if direction == "bwd":
${add_all("add_queries", "global", "local", parts_of[dim], "row", f" * {height}", False)}\
% endif
% for name, space in (("store_row", "local"), *([("store_sums", "global")] if direction == "bwd" else [])):

void ${name}(__global elem_t *row, __${space} const float *from, const int size, const float factor)
{
    int c = 0;
    for (; c + ${wide} <= size; c += ${wide}) {
        STORE${wide}(vload${wide}(0, from + c) * factor, row + c);
    }
    for (; c < size; ++c) {
        STORE1(from[c] * factor, row + c);
    }
}
% endfor
% if masked:

// the mask of ${vec} scores, which lie at any places
${vf} mask_of(__global const elem_t *mask, const long *places)
{
    float part[${vec}];
    for (int i = 0; i < ${vec}; ++i) {
        part[i] = LOAD1(mask + places[i]);
    }
    return vload${vec}(0, part);
}
% endif
% if philox:

${philox}
${kept}\
% endif
