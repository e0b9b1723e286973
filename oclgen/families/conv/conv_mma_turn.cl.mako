<%doc>
Copies images for `conv_mma`: [batch][pixels][channels], channels padded with zeros to whole chunks
of 16 bytes, from planes of channels or from pixels whose channels fill no chunks.

A work-group of 256 moves 64 pixels of 128 bytes of channels, through local memory; where there are
few channels a work-item gathers a chunk of one pixel.

word, chunk         integer type of an element; elements in 16 bytes
channels, padded    channels of an image, and of the copy
pixels              pixels of an image
planes              the image lies as planes of channels
few                 there are few channels
vec                 neighbouring pixels that are read at once where the image is aligned
tf32                round to tf32, to nearest even
</%doc>
<%!
    from oclgen.render import TF32_NEAREST, TF32_ROUNDED
%>\
<%
    span = 8 * chunk
    words = f"{word}{chunk}"
    def each(width, text):
        return [text.replace("#", f".s{i}" if width > 1 else "").replace("@", str(i)) for i in range(width)]
%>\
typedef ${word} word;
typedef ${words} words;

% if tf32:
word rounded(const word value)
{
    const word nearest = ${TF32_NEAREST};
    return ${TF32_ROUNDED};
}

% endif
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void conv_mma_turn(
    __global const word *restrict from, const long offset_from,
    __global words *restrict to, const long offset_to)
{
% if few:
    const int p = (int)get_global_id(0), c0 = (int)get_global_id(1) * ${chunk};
    from += offset_from + (long)get_global_id(2) * ${channels * pixels};
    to += offset_to / ${chunk} + (long)get_global_id(2) * ${pixels * padded // chunk};
    if (p < ${pixels}) {
        word each[${chunk}];
#pragma unroll
        for (int i = 0; i < ${chunk}; ++i) {
            const long at = ${f"(c0 + i) * (long){pixels} + p" if planes else f"p * (long){channels} + c0 + i"};
            each[i] = c0 + i < ${channels} ? ${"rounded(from[at])" if tf32 else "from[at]"} : 0;
        }
        to[(p * (long)${padded} + c0) / ${chunk}] = vload${chunk}(0, each);
    }
% else:
    __local word turned[64][${span + 2}];
    const int id = (int)get_local_id(0);
    const int p0 = (int)get_group_id(0) * 64, c0 = (int)get_group_id(1) * ${span};
    from += offset_from + (long)get_global_id(2) * ${channels * pixels};
    to += offset_to / ${chunk} + (long)get_global_id(2) * ${pixels * padded // chunk};
% if planes:
% if vec > 1:
    if (((size_t)from & ${vec * 16 // chunk - 1}) == 0) {
        for (int i = id; i < ${span * 64 // vec}; i += 256) {
            const int c = i / ${64 // vec}, p = i % ${64 // vec} * ${vec};
            if (c0 + c < ${channels} && p0 + p < ${pixels}) {
                const ${word}${vec} read = *(__global const ${word}${vec} *)(from + (c0 + c) * (long)${pixels} + p0 + p);
% for line in each(vec, "turned[p + @][c] = read#;"):
                ${line}
% endfor
            } else {
% for line in each(vec, "turned[p + @][c] = 0;"):
                ${line}
% endfor
            }
        }
    } else
% endif
    for (int i = id; i < ${span * 64}; i += 256) {
        const int c = i / 64, p = i % 64;
        turned[p][c] = c0 + c < ${channels} && p0 + p < ${pixels} ? from[(c0 + c) * (long)${pixels} + p0 + p] : 0;
    }
% else:
    for (int i = id; i < ${span * 64}; i += 256) {
        const int p = i / ${span}, c = i % ${span};
        turned[p][c] = c0 + c < ${channels} && p0 + p < ${pixels} ? from[(p0 + p) * (long)${channels} + c0 + c] : 0;
    }
% endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < 512; i += 256) {
        const int p = i / 8, c = i % 8 * ${chunk};
        if (p0 + p < ${pixels} && c0 + c < ${padded}) {
% if tf32:
            to[((p0 + p) * (long)${padded} + c0 + c) / ${chunk}] = (words)(${", ".join(each(chunk, "rounded(turned[p][c + @])"))});
% else:
            to[((p0 + p) * (long)${padded} + c0 + c) / ${chunk}] = vload${chunk}(0, &turned[p][c]);
% endif
        }
    }
% endif
}
