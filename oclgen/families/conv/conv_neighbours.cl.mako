<%doc>
Repacks rows of bf16 images as words of an element and of its neighbour one step along the row: what
an instruction that adds products of pairs multiplies with pairs of neighbouring results. What lies
in the padding is zero. Words lie in planes, [images][channels][height][words].

For CPUs: one work-item fills `span` words of `rows` rows; images in channels_last are turned in
registers. The last vector of a row, and of channels, overlaps the one before it.

in_pixels           channels of a pixel are neighbours and a row has all of them, else pixels of a
                    row, of which each channel has its own
height              rows of a plane
width, words        elements and words of a row
origin, step        place of the first word's element, and distance of its neighbour
channels            of a pixel
rows, span          rows, and words of each, per work-item
vec                 vector width, at most the words of a row, in channels_last also the channels
transpose           text of the function transpose(rows), in channels_last
</%doc>
<%!
    from oclgen.families.parts.expressions import load, store
    from oclgen.render import vector
%>\
<%
    v, halves, mask = vector(vec, "uint"), vector(vec, "ushort"), vector(vec, "int")
    lanes = f"({vector(vec, 'int')})({', '.join(map(str, range(vec)))})"
%>\
${transpose}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_neighbours(
    __global const ushort *restrict from, const long offset_from,
    __global uint *restrict packed, const long offset_packed, const int all_rows)
{
    const int first = (int)get_global_id(0) * ${span}, last = min(first + ${span}, ${words});
    const int end_row = min((int)get_global_id(1) * ${rows} + ${rows}, all_rows);
    from += offset_from;
    packed += offset_packed;
    for (int row = (int)get_global_id(1) * ${rows}; row < end_row; ++row) {
% if in_pixels:
        __global const ushort *of_row = from + row * (long)${width * channels};
        __global uint *to = packed + (row / ${height} * ${channels}L * ${height} + row % ${height}) * ${words};
        for (int c = 0; c < ${channels}; c += ${vec}) {
            const int channel = min(c, ${channels - vec});
            for (int start = first; start < last; start += ${vec}) {
                const int i = min(start, ${words - vec});
                ${vector(vec)} square[${vec}];
#pragma unroll
                for (int s = 0; s < ${vec}; ++s) {
                    const int place = i + s + ${origin}, next = place + ${step};
                    ${v} low = 0, high = 0;
                    if (place >= 0 && place < ${width}) {
                        low = convert_${v}(${load(vec, f"of_row + place * {channels} + channel")});
                    }
                    if (next >= 0 && next < ${width}) {
                        high = convert_${v}(${load(vec, f"of_row + next * {channels} + channel")}) << 16;
                    }
                    square[s] = as_${vector(vec)}(low | high);
                }
                transpose(square);
#pragma unroll
                for (int s = 0; s < ${vec}; ++s) {
                    ${store(vec, f"as_{v}(square[s])", f"to + (channel + s) * {height * words}L + i")};
                }
            }
        }
% else:
        __global const ushort *at = from + row * (long)${width};
        __global uint *to = packed + row * (long)${words};
        for (int start = first; start < last; start += ${vec}) {
            const int i = min(start, ${words - vec}), w = i + ${origin};
% if vec > 1:
            // a row's neighbours are read, too, but not beyond the first and the last row
            if (row * (long)${width} + w >= 0 && row * (long)${width} + w + ${vec + step} <= all_rows * (long)${width}) {
                const ${mask} place = w + ${lanes}, next = place + ${step};
                const ${v} low = convert_${v}(vload${vec}(0, at + w)), high = convert_${v}(vload${vec}(0, at + w + ${step})) << 16;
                const ${v} kept = (as_${v}(place >= 0 && place < ${width}) & low) | (as_${v}(next >= 0 && next < ${width}) & high);
                ${store(vec, "kept", "to + i")};
                continue;
            }
% endif
            for (int s = 0; s < ${vec}; ++s) {
                const int place = w + s, next = place + ${step};
                const uint low = place >= 0 && place < ${width} ? at[place] : 0;
                const uint high = next >= 0 && next < ${width} ? at[next] : 0;
                to[i + s] = low | high << 16;
            }
        }
% endif
    }
}
