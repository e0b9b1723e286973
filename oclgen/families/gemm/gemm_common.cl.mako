<%doc>
What kernels of GEMM share: parameters, the place of a work-group and of its slice of k, and the
stores of register-tiled kernels. Defs for other templates, no text of its own; names are theirs.
</%doc>
<%!
    from oclgen.families.parts.expressions import halves
    from oclgen.render import vector
%>\
<%def name="parameters(c_type, split, ragged='', tail=False)">\
    __global const elem_t *restrict a, const long offset_a, const int ld_a, const long batch_a,
    __global const elem_t *restrict b, const long offset_b, const int ld_b, const long batch_b,
    __global ${c_type} *restrict c, const long offset_c, const int ld_c, const long batch_c,
${term_parameters}\
${ends(ragged)}\
    ${sizes(ragged)}${", const int slice, const int batch" if split else ""}${", const int first_row" if tail else ""}\
</%def>

<%doc>
What a kernel knows of batch items that differ in a size: where each ends, how many rows all have.
The parameter of the size is their mean, and the size itself is found.
</%doc>
<%def name="ends(ragged)">\
% if ragged:
    __global const int *restrict ends, const long offset_ends, const int all_rows, const int batch,
% endif
</%def>
<%def name="sizes(ragged)">${", ".join(f"const int {'mean' if size == ragged else size}" for size in "mnk")}</%def>

<%doc>
Which rows are a batch item's. Of a ragged m, the item whose tile of rows is at `tile_row`, which
becomes the tile's first row in the item. Rows behind the last item are one more, of no products, so
that they are zero; what is behind them ends here.
</%doc>
<%def name="item_of_rows(tile_m)">\
    ends += offset_ends;
    int item = 0, first = 0, last = clamp(ends[0], 0, all_rows);
    while (tile_row >= last - first) {
        if (++item > batch) {
            return;
        }
        tile_row -= (last - first + ${tile_m - 1}) / ${tile_m} * ${tile_m};
        first = last;
        last = item < batch ? clamp(ends[item], first, all_rows) : all_rows;
    }
    const int m = last - first;
</%def>
<%def name="steps_of_item(ragged)">const int k_first = 0, k_last = ${"item < batch ? k : 0" if ragged == "m" else "k"};</%def>
<%def name="rows_of_item()">\
    ends += offset_ends;
    const int item = (int)get_global_id(2);
    const int first = item > 0 ? clamp(ends[item - 1], 0, all_rows) : 0;
    const int k = clamp(ends[item], first, all_rows) - first;
</%def>
<%def name="matrices_of_item(ragged)">\
    a += offset_a + first * (long)ld_a;
    b += offset_b + ${"item * batch_b" if ragged == "m" else "first * (long)ld_b"};
    c += offset_c + ${"first * (long)ld_c" if ragged == "m" else "item * batch_c"};
</%def>

<%def name="slice_of_item(split, ragged='')">\
% if ragged:
${rows_of_item() if ragged == "k" else ""}\
    ${steps_of_item(ragged)}
${matrices_of_item(ragged)}\
% else:
% if split:
    const int item = (int)get_global_id(2) % batch;
    const int k_first = (int)get_global_id(2) / batch * slice;
    const int k_last = min(k_first + slice, k);
% else:
    const int item = (int)get_global_id(2);
    const int k_first = 0, k_last = k;
% endif
    a += offset_a + item * batch_a;
    b += offset_b + item * batch_b;
    c += offset_c + (long)get_global_id(2) * batch_c;
% if bias != "none":
    bias += offset_bias;
% endif
% if residual:
    residual += offset_residual + item * batch_c;
% endif
% endif
</%def>

<%def name="tiles_of_rows(tile_m, ragged)">${f"(all_rows + {tile_m - 1}) / {tile_m} + batch + 1" if ragged == "m" else f"(m + {tile_m - 1}) / {tile_m}"}</%def>
<%doc>
The tile of a work-group. The rows of a tail begin at `first_row`, as do those of its planes, which
c is: it moves back, so that rows are counted from the matrices' first.
</%doc>
<%def name="strips(ragged='', tail=False)">\
    // strips of group_m rows of tiles, each swept column by column
    const int tiles_m = ${f"(m - first_row + {tile_m - 1}) / {tile_m}" if tail else tiles_of_rows(tile_m, ragged)}, tiles_n = (n + ${tile_n - 1}) / ${tile_n};
    const int strip = (int)get_group_id(0) / (${group_m} * tiles_n);
    const int place = (int)get_group_id(0) - strip * ${group_m} * tiles_n;
    const int height = min(${group_m}, tiles_m - strip * ${group_m});
    ${"" if ragged == "m" else "const "}int tile_row = ${"first_row + " if tail else ""}(strip * ${group_m} + place % height) * ${tile_m};
    const int tile_column = place / height * ${tile_n};
% if tail:
    c -= first_row * (long)ld_c;
% endif
% if ragged == "m":
${item_of_rows(tile_m)}\
% endif
</%def>

<%doc>
Stores the first `count` lanes of a vector of results, which crosses the edge: by halves, so that
lanes stay in registers. `text` is a `gemm_register_text.Results`.
</%doc>
<%def name="store_halves(vec)">\
void store_halves(__global ${text.c_type} *p, const ${vector(vec)} value, const int count${text.part_parameters})
{
% for width in halves(vec):
<% rest = "value" if 2 * width == vec else f"rest{2 * width}" %>\
    ${vector(width)} rest${width} = ${rest}.lo;
    if (count > 0 && (count & ${width})) {
        const ${vector(width)} part = rest${width}${text.bias_n(width, "bias")}${f" + LOAD{width}(residual)" if residual else ""};
        ${text.store(width, "part", "p")}
        rest${width} = ${rest}.hi;
        p += ${width};
% if text.bias_n(1, ""):
        bias += ${width};
% endif
% if residual:
        residual += ${width};
% endif
    }
% endfor
}

</%def>

<%doc> Stores the lanes of a vector of results that its work-item owns, from the one at `first` on. </%doc>
<%def name="store_own(vec)">\
void store_own(__global ${text.c_type} *p, const ${vector(vec)} value, const int first${text.part_parameters})
{
    float part[${vec}];
    vstore${vec}(value, 0, part);
    for (int s = first; s < ${vec}; ++s) {
        const float one = part[s]${text.bias_n(1, "bias + s")}${" + LOAD1(residual + s)" if residual else ""};
        ${text.store(1, "one", "p + s")}
    }
}

</%def>

<%doc>
Stores the item_m x item_n sums of a work-item. Where its columns are `shifted`, it owns those from
`own` on: a neighbour stores the others, and what is added to them may lie in the results' memory.
Vectors that cross n are stored by halves, where a condition `exact` is given only if it holds.
</%doc>
<%def name="store_rows(rows, columns, vec, shifted=False, exact='')">\
% for i in rows:
% if edge_m:
        if (m0 + ${i} < m)
% endif
        {
            const int row = m0 + ${i};
            __global ${text.c_type} *out = c + row * (long)ld_c + n0;
% for j in columns:
            const ${vector(vec)} value${j} = acc${i}_${j}${text.bias_m};
% if shifted:
            if (n0 + ${j} < own) {
                store_own(out + ${j}, value${j}, own - n0 - ${j}${text.part_arguments(j)});
            } else
% elif edge_n:
            if (n0 + ${j + vec} > n${exact}) {
                store_halves(out + ${j}, value${j}, n - n0 - ${j}${text.part_arguments(j)});
            } else
% endif
            {
                const ${vector(vec)} whole = value${j}${text.plus_terms(vec, j)};
                ${text.store(vec, "whole", f"out + {j}")}
            }
% endfor
        }
% endfor
</%def>
