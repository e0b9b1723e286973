<%doc>
Copies a strided tensor into another whose fastest dimension is not the source's, on CPUs: a
work-item turns tiles of vec x vec items in registers. Items keep their bits.

bytes             of an item: 2 or 4
vec               lanes of a vector
tiles_a, tiles_b  tiles along `a` and `b` that a work-item turns
short_a, short_b  `a` or `b` is shorter than a vector: parts of vectors are stored, or vectors are loaded
                  that end beyond a row, but not beyond what `source_items` can be read. Else the last
                  tile begins earlier, and items of the one before it are copied twice
outer             number of dimensions walked by get_global_id(2)
index             type of sizes and strides: int where every element index fits, else long
transpose         text of the function transpose(rows)

Dimension `a` is the target's fastest, `b` the source's; items are neighbours along them.
</%doc>\
<%!
    from oclgen.families.parts.expressions import halves
%>\
<%
    item = "float" if bytes == 4 else "ushort"
    # the inner loop goes along the dimension of more tiles, so that lines are complete soon
    far, near = ("b", "a") if tiles_a > tiles_b else ("a", "b")
    def loaded(width, place):
        text = f"vload{width}(0, {place})" if width > 1 else f"*({place})"
        lanes = width if width > 1 else ""
        return text if bytes == 4 else f"as_float{lanes}(convert_uint{lanes}({text}))"
    def stored(width, value, place):
        lanes = width if width > 1 else ""
        bits = value if bytes == 4 else f"convert_ushort{lanes}(as_uint{lanes}({value}))"
        return f"vstore{width}({bits}, 0, {place});" if width > 1 else f"*({place}) = {bits};"
%>\
${transpose}

% if short_a:
void store_some(const float${vec} value, __global ${item} *p, const int count)
{
% for width in halves(vec):
<%
    rest = "value" if 2 * width == vec else f"rest{2 * width}"
    lanes = width if width > 1 else ""
%>\
    float${lanes} rest${width} = ${rest}.lo;
    if (count & ${width}) {
        ${stored(width, f"rest{width}", "p")}
        rest${width} = ${rest}.hi;
        p += ${width};
    }
% endfor
}

% endif
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void strided_turn(
    const __global ${item} *restrict source, const long source_start,
    __global ${item} *restrict target, const long target_start,
% if short_b:
    const ${index} source_items,
% endif
    const ${index} size_a, const ${index} source_stride_a, const ${index} target_stride_a,
    const ${index} size_b, const ${index} source_stride_b, const ${index} target_stride_b\
% for d in range(1, outer + 1):
,
    const ${index} size_${d}, const ${index} source_stride_${d}, const ${index} target_stride_${d}\
% endfor
)
{
    const ${index} begin_a = (${index})get_global_id(0) * ${vec * tiles_a};
    const ${index} end_a = min(begin_a + ${vec * tiles_a}, size_a);
    const ${index} begin_b = (${index})get_global_id(1) * ${vec * tiles_b};
    const ${index} end_b = min(begin_b + ${vec * tiles_b}, size_b);
    ${index} from = 0, to = 0;
% if outer:
    ${index} rest = get_global_id(2);
% endif
% for d in range(outer, 0, -1):
    from += rest % size_${d} * source_stride_${d};
    to += rest % size_${d} * target_stride_${d};
    rest /= size_${d};
% endfor
    for (${index} tile_${far} = begin_${far}; tile_${far} < end_${far}; tile_${far} += ${vec}) {
        for (${index} tile_${near} = begin_${near}; tile_${near} < end_${near}; tile_${near} += ${vec}) {
            const ${index} a = ${"tile_a" if short_a else f"min(tile_a, size_a - {vec})"};
            const ${index} b = ${"tile_b" if short_b else f"min(tile_b, size_b - {vec})"};
            const __global ${item} *read = source + source_start + from + a * source_stride_a + b;
            __global ${item} *write = target + target_start + to + b * target_stride_b + a;
% if short_b:
            const int rows = min(size_a - a, (${index})${vec});
            if (from + (a + rows - 1) * source_stride_a + ${vec} > source_items) {
                for (int i = 0; i < rows; ++i) {
                    for (int j = 0; j < size_b; ++j) {
                        write[j * target_stride_b + i] = read[i * source_stride_a + j];
                    }
                }
                continue;
            }
% endif
            float${vec} tile[${vec}];
#pragma unroll
            for (int i = 0; i < ${vec}; ++i) {
% if short_a:
                tile[i] = 0.0f;
                if (i < size_a)
% endif
                tile[i] = ${loaded(vec, "read + i * source_stride_a")};
            }
            transpose(tile);
#pragma unroll
            for (int i = 0; i < ${vec}; ++i) {
% if short_b:
                if (i < size_b)
% endif
                {
                    ${"store_some(tile[i], write + i * target_stride_b, size_a);" if short_a else stored(vec, "tile[i]", "write + i * target_stride_b")}
                }
            }
        }
    }
}
