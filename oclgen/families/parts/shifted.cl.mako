<%doc> A chunk of 16 bytes that begins anywhere: a def for other templates, no text of its own. </%doc>
<%def name="shifted(elem_bytes)">\
/* the 16 bytes that begin `shift` bytes, whole elements, behind the first of two neighbouring chunks */
uint4 shifted(const uint4 low, const uint4 high, const int shift)
{
    const uint4 four = shift & 8 ? (uint4)(low.zw, high.xy) : low;
    const uint2 behind = shift & 8 ? high.zw : high.xy;
    const uint4 words = shift & 4 ? (uint4)(four.yzw, behind.x) : four;
% if elem_bytes == 4:
    return words;
% else:
    const uint last = shift & 4 ? behind.y : behind.x;
    const ushort8 halves = as_ushort8(words);
    return shift & 2 ? as_uint4((ushort8)(halves.s1234, halves.s567, as_ushort2(last).x)) : words;
% endif
}

</%def>
