<%doc>
Copies images of few channels for `conv_mma`: [batch][pixels][channels], channels padded with zeros
to whole chunks of 16 bytes, from planes of channels or from pixels.

A work-item gathers a chunk of one pixel: tiles of 128 bytes of channels, as `pack_tiles` turns
them, would be empty for the most part.

word, chunk         integer type of an element; elements in 16 bytes
channels, padded    channels of an image, and of the copy
pixels              pixels of an image
planes              the image lies as planes of channels
tf32                round to tf32, to nearest even
</%doc>
<%!
    from oclgen.render import TF32_NEAREST, TF32_ROUNDED
%>\
typedef ${word} word;
typedef ${word}${chunk} words;

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void conv_mma_gather(
    __global const word *restrict from, const long offset_from,
    __global words *restrict to, const long offset_to)
{
    const int p = (int)get_global_id(0), c0 = (int)get_global_id(1) * ${chunk};
    from += offset_from + (long)get_global_id(2) * ${channels * pixels};
    to += offset_to / ${chunk} + (long)get_global_id(2) * ${pixels * padded // chunk};
    if (p < ${pixels}) {
        word each[${chunk}];
#pragma unroll
        for (int i = 0; i < ${chunk}; ++i) {
            const long at = ${f"(c0 + i) * (long){pixels} + p" if planes else f"p * (long){channels} + c0 + i"};
            each[i] = c0 + i < ${channels} ? from[at] : 0;
        }
        words value = vload${chunk}(0, each);
% if tf32:
        const words nearest = ${TF32_NEAREST};
        value = ${TF32_ROUNDED};
% endif
        to[(p * (long)${padded} + c0) / ${chunk}] = value;
    }
}
