<%doc>
Adds the planes that a split reduction leaves, in order, and stores act(sum + bias + residual).

Planes are fp32 [planes][items][rows][columns], one behind the other. Results lie in one row, in
rows that lie apart, or as filters. A work-item stores vec neighbours of a row. Of many planes of
few elements slices work-items add some each, and their sums meet in local memory.

Filters, one of [taps][depth] in each row of a plane, lie as their strides say: a work-group takes
some depths of a filter through local memory, so that neighbours store to neighbours whether depths
or taps lie side by side. On GPUs a work-item begins several loads before it adds the first: a loop
that adds what it loads waits for each plane of its last, incomplete round.

activation, residual    the epilogue: ACT, and whether what lies as the results do is added
bias                    place of an element's bias (`Bias`), or None
exclusive               "restrict ", or "" where the results are the first plane
planes                  number of planes; 0: an argument
strided                 results lie in rows whose number, length and strides are arguments
later                   planes have the last rows of results alone: the first of them is an argument
columns, plane          elements of a row and of a plane of filters; else arguments
vec, edge               neighbours per work-item, and whether they do not divide a row
local_size              work-items per group, along columns
slices                  work-items that share the planes of an element
ahead                   planes that a work-item loads before it adds them; 1: each by itself
weights                 weights that a work-item loads before it keeps them; 1: each by itself
filters                 how filters lie in a plane (`Filters`), or None
</%doc>
<%!
    from oclgen.render import vector
%>\
<%
    floats = vector(vec)
    items = filters.taps * filters.span if filters else 0
    # of unaligned loads CPUs want no unrolled loop (PoCL), and no sum that begins with 0 (Intel)
    first = 1 if edge else "get_local_id(1)" if slices > 1 else 0
    unroll = "" if edge else f"#pragma unroll {4 if slices > 1 else 16}\n"
    def counted(declared=""):
        return "" if planes else f", {declared}count"
    def load(width, place):
        if edge and width > 1:
            return f"vload{width}(0, {place})"
        return f"*({place})" if width == 1 else f"*(__global const {floats} *)({place})"
    def plus_terms(width, at):
        text = f" + LOAD{width}(residual + {at})" if residual else ""
        if bias:
            place = bias.place.format(at)
            text = f" + LOAD{width if bias.of_columns else 1}(bias + offset_bias + {place}){text}"
        return text
%>\
${preamble}
${activation}

% for width in sorted({vec, 1 if edge else vec}):
static ${vector(width)} added${width}(__global const float *planes, const long plane${counted('const int ')})
{
    ${vector(width)} sum = ${load(width, "planes") if edge else "0.0f"};
% if ahead > 1:
    for (int i = ${first}; i < count; i += ${ahead * slices}) {
        ${vector(width)} loaded[${ahead}];
#pragma unroll
        for (int j = 0; j < ${ahead}; ++j) {
            // beyond the last plane the last one is loaded again, and not added
            loaded[j] = ${load(width, f"planes + min(i + j * {slices}, count - 1) * plane")};
        }
#pragma unroll
        for (int j = 0; j < ${ahead}; ++j) {
            if (i + j * ${slices} < count) {
                sum += loaded[j];
            }
        }
    }
% else:
${unroll}\
    for (int i = ${first}; i < ${planes or 'count'}; i += ${slices}) {
        sum += ${load(width, "planes + i * plane")};
    }
% endif
    return sum;
}

% endfor
__kernel __attribute__((reqd_work_group_size(${local_size}, ${slices}, 1)))
void sum_planes(
    __global const float *${exclusive}planes, const long offset_planes,
${term_parameters}\
% if filters:
    __global elem_t *restrict w, const long offset_w,
    const long w_filter, const long w_depth, const long w_row, const long w_column${", const long w_slice, const int w_slice_channels" if filters.slice else ""}${counted('const int ')})
{
    __local float sums[${filters.taps}][${filters.span + 1}];
    const int first = (int)get_group_id(0) * ${filters.span}, filter = (int)get_group_id(1);
    const int some = min(${filters.depth} - first, ${filters.span});
    planes += offset_planes + (long)filter * ${columns} + first;
% if filters.together > 1:
    planes += filter / ${filters.channels} % ${filters.together} * ${filters.depth};
% endif
% if weights > 1:
    for (int i = (int)get_local_id(0); i < ${items}; i += ${weights * local_size}) {
        float loaded[${weights}];
#pragma unroll
        for (int j = 0; j < ${weights}; ++j) {
            const int at = min(i + j * ${local_size}, ${items - 1});
            const int tap = at / ${filters.span}, d = min(at % ${filters.span}, some - 1);
            loaded[j] = added1(planes + tap * ${filters.padded} + d, ${plane}L${counted()});
        }
#pragma unroll
        for (int j = 0; j < ${weights}; ++j) {
            const int at = i + j * ${local_size};
            if (at < ${items}) {
                sums[at / ${filters.span}][at % ${filters.span}] = loaded[j];
            }
        }
    }
% else:
    for (int i = (int)get_local_id(0); i < ${items}; i += ${local_size}) {
        const int tap = i / ${filters.span}, d = i % ${filters.span};
        if (d < some) {
            sums[tap][d] = added1(planes + tap * ${filters.padded} + d, ${plane}L${counted()});
        }
    }
% endif
    barrier(CLK_LOCAL_MEM_FENCE);
    w += offset_w + filter * w_filter${"" if filters.slice else " + first * w_depth"};
    for (int i = (int)get_local_id(0); i < some * ${filters.taps}; i += ${local_size}) {
        const int tap = w_depth == 1 ? i / some : i % ${filters.taps};
        const int d = w_depth == 1 ? i % some : i / ${filters.taps};
% if filters.slice:
        const int tap_d = (first + d) / ${filters.slice}, channel = (first + d) % ${filters.slice};
        if (channel < w_slice_channels) {
            STORE1(sums[tap][d], w + tap_d * w_slice + channel * w_depth + tap / ${filters.kernel_w} * w_row + tap % ${filters.kernel_w} * w_column);
        }
% else:
        STORE1(sums[tap][d], w + d * w_depth + tap / ${filters.kernel_w} * w_row + tap % ${filters.kernel_w} * w_column);
% endif
    }
}
% else:
    __global elem_t *${exclusive}out, const long offset_out,
% if strided:
    const int ld_out, const long batch_out, const int columns, const long plane${counted('const int ')}${", const int first_row" if later else ""})
% else:
    const long plane${counted('const int ')})
% endif
{
    const ${"int" if strided else "long"} column = get_global_id(0) * ${vec};
% if strided:
<% at, rows = ("get_group_id(1)", "get_num_groups(1)") if slices > 1 else ("get_global_id(1)", "get_global_size(1)") %>\
    const int row = ${f"first_row + (int){at}" if later else at}, item = get_global_id(2);
    const long place = item * batch_out + row * (long)ld_out;
    planes += offset_planes + (item * (long)${rows} + ${at if later else "row"}) * columns;
% else:
    const long columns = plane;
    planes += offset_planes;
% endif
    out += offset_out${" + place" if strided else ""};
% if residual:
    residual += offset_residual${" + place" if strided else ""};
% endif
% if slices > 1:
    // work-items beyond the last column meet the others at the barrier
    ${floats} sum = added${vec}(planes + min(column, columns - ${vec}), plane${counted()});
    __local ${floats} sums[${slices}][${local_size}];
    sums[get_local_id(1)][get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(1) > 0 || column >= columns) {
        return;
    }
    for (int i = 1; i < ${slices}; ++i) {
        sum += sums[i][get_local_id(0)];
    }
    const ${floats} result = sum${plus_terms(vec, "column")};
    STORE${vec}(ACT(result), out + column);
% else:
    if (column + ${vec} <= columns) {
        const ${floats} sum = added${vec}(planes + column, plane${counted()})${plus_terms(vec, "column")};
        STORE${vec}(ACT(sum), out + column);
    }
% if edge:
    else {
        for (int at = column; at < columns; ++at) {
            const float sum = added1(planes + at, plane${counted()})${plus_terms(1, "at")};
            STORE1(ACT(sum), out + at);
        }
    }
% endif
% endif
}
% endif
