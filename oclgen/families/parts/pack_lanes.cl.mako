<%doc>
Packs matrices so that neighbouring rows become the lanes of a vector: [matrices, rows, taps, depth]
of any strides to fp32 [matrices, blocks of rows, taps, depth, block], where rows past the last are
zero; or of bf16 to `pairs`, words of two depths, [..., taps, (depth + 1) / 2, block].

For CPUs, where local memory is ordinary memory: a work-item takes squares of vec rows and vec depths
of a tap, one after the other. Whichever of the two are neighbours in memory is loaded in vectors.

preamble            storage type of the matrices
rows, depth         rows of a matrix, and elements of a row's tap
taps, kernel_w      taps, and those that lie side by side
slice_taps          taps of a slice of a volume, whose slices lie apart; their channels may be more than w has,
                    and are zero there; 0: there is no volume
mirrored            taps that lie side by side are packed from the last to the first
vec                 vector width
squares             of a work-item
block               rows that lie together, a multiple of vec
strides             strides by name, of a row, a depth, and a row and a column of taps; an argument
                    where there is no number
matrix_at           place of a matrix, by its number
pairs               words are pairs of depths, 16 bits each, the last filled up with zero
transpose           text of the function transpose(rows)
</%doc>
<%!
    from oclgen.families.parts.expressions import below, write_item
    from oclgen.families.parts.expressions import chunks as pieces_of
    from oclgen.render import vector
%>\
<%
    words, two = (-(-depth // 2), "2 * ") if pairs else (depth, "")
    chunks = -(-words // vec)
    given = [f"const long {name}" for name, step in strides.items() if step is None]
    if slice_taps:
        given += ["const long slice_step", "const int slice_depth"]
    word = "uint" if pairs else "float"
    lanes = vector(vec, word)
    # rows of the last vector, where they are neighbours and do not fill it
    rest = rows % vec if strides["row_step"] == 1 else 0
    def loaded(width, at):
        if not pairs:
            return f"LOAD{width}({at})"
        return f"convert_uint{width}(vload{width}(0, {at}))" if width > 1 else f"*({at})"
    def loaded_rest(at):
        pieces = [loaded(width, f"{at} + {start}") for start, width in pieces_of(rest, vec)]
        return f"({lanes})({', '.join(pieces + ['0'] * (vec - rest))})"
    own_depth, whole = ("slice_depth", False) if slice_taps else (depth, depth % 2 == 0)
    odd = [] if whole else [("2 * (first + i) + 1", str(own_depth))]
    has_high = below(*odd)
    row_of_depths = (
        f"as_{vector(vec)}(vload{vec}(0, (__global const uint *)(from + i * row_step)))"
        if pairs
        else f"LOAD{vec}(from + i * row_step)"
    )
%>\
${preamble}

${transpose}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_lanes(
    __global const elem_t *restrict source, const long offset_source,
% if given:
    ${", ".join(given)},
% endif
    __global ${word} *restrict into, const long offset_into)
{
% for name, step in strides.items():
% if step is not None:
    const long ${name} = ${step};
% endif
% endfor
    const int row = (int)get_global_id(1) * ${vec}, rows = min(${vec}, ${rows} - row);
    const long matrix = get_global_id(2);
    source += offset_source + ${matrix_at} + row * row_step;
    into += offset_into + (matrix * ${-(-rows // block)} + row / ${block}) * ${taps * words * block}L + row % ${block};
    const int begin = (int)get_global_id(0) * ${squares};
    for (int at = begin; at < min(begin + ${squares}, ${taps * chunks}); ++at) {
        const int tap = ${f"at / {chunks}" if taps > 1 else "0"}, first = (at - tap * ${chunks}) * ${vec};
        const int ${"all" if slice_taps else "depths"} = min(${vec}, ${words} - first);
        __global const elem_t *from = source + first * ${two}depth_step
            + tap ${f"/ {slice_taps} * slice_step + tap % {slice_taps} " if slice_taps else ""}/ ${kernel_w} * down_step + ${f"({kernel_w - 1} - tap % {kernel_w})" if mirrored else f"tap % {kernel_w}"} * across_step;
        __global ${word} *packed = into + (tap * ${words} + first) * ${block};
% if slice_taps:
        const int depths = clamp(${"(slice_depth + 1) / 2" if pairs else "slice_depth"} - first, 0, all);
        for (int i = depths; i < all; ++i) {
            ${write_item(vec, f"({lanes})(0)", f"packed[i * {block}]")};
        }
% endif

        if (row_step == 1 && rows == ${vec}) {
            for (int i = 0; i < depths; ++i) {
% if pairs:
                ${lanes} lanes = convert_${lanes}(vload${vec}(0, from + 2 * i * depth_step));
                ${has_high}lanes |= convert_${lanes}(vload${vec}(0, from + (2 * i + 1) * depth_step)) << 16;
% else:
                const ${lanes} lanes = LOAD${vec}(from + i * depth_step);
% endif
                ${write_item(vec, "lanes", f"packed[i * {block}]")};
            }
            continue;
        }
% if rest:
        if (rows == ${rest}) {
            for (int i = 0; i < depths; ++i) {
                ${lanes} lanes = ${loaded_rest(f"from + {two}i * depth_step")};
% if pairs:
                ${has_high}lanes |= ${loaded_rest("from + (2 * i + 1) * depth_step")} << 16;
% endif
                ${write_item(vec, "lanes", f"packed[i * {block}]")};
            }
            continue;
        }
% endif
        const bool is_whole = depths == ${vec}${f" && 2 * (first + {vec}) <= {own_depth}" if pairs and not whole else ""};
% if slice_taps:
        if (depth_step == 1 && is_whole) {
% else:
        // what lies behind a tap is read, too, but not beyond the last row
        if (depth_step == 1 && (is_whole || from - source + (rows - 1) * row_step + ${two}${vec} <= (${rows - 1} - row) * row_step + ${taps * depth})) {
% endif
            ${vector(vec)} tile[${vec}];
#pragma unroll
            for (int i = 0; i < ${vec}; ++i) {
                tile[i] = i < rows ? ${row_of_depths} : 0.0f;
            }
            transpose(tile);
            if (is_whole) {
#pragma unroll
                for (int i = 0; i < ${vec}; ++i) {
                    ${write_item(vec, f"as_{lanes}(tile[i])" if pairs else "tile[i]", f"packed[i * {block}]")};
                }
                continue;
            }
% if not slice_taps:
#pragma unroll
            for (int i = 0; i < ${vec}; ++i) {
                if (i < depths) {
% if pairs and not whole:
                    const ${lanes} lanes = as_${lanes}(tile[i]) & (${f"2 * (first + i) + 1 < {depth}"} ? 0xffffffffu : 0xffffu);
                    ${write_item(vec, "lanes", f"packed[i * {block}]")};
% else:
                    ${write_item(vec, f"as_{lanes}(tile[i])" if pairs else "tile[i]", f"packed[i * {block}]")};
% endif
                }
            }
            continue;
% endif
        }
        for (int i = 0; i < depths; ++i) {
            for (int j = 0; j < ${vec}; ++j) {
% if pairs:
                __global const elem_t *low = from + j * row_step + 2 * i * depth_step;
                packed[i * ${block} + j] = j < rows ? (uint)*low : 0;
                ${below(("j", "rows"), *odd)}packed[i * ${block} + j] |= (uint)low[depth_step] << 16;
% else:
                packed[i * ${block} + j] = j < rows ? LOAD1(from + j * row_step + i * depth_step) : 0.0f;
% endif
            }
        }
    }
}
