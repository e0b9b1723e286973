<%doc>
unpack(p, o, s, w) writes the weights of a stripe, the `width` bytes from byte o of the quants of the
block at p on, as floats: w[0] those of the low halves, w[1] those of the high halves, or w[0] alone.

Four bits become a float without a conversion, which takes GPUs four times as long as an addition:
as the last bits of 2^23, or as bits 4 to 7 of 2^19, from which that power of two is subtracted.

stripes     a `packed_formats.Stripes`
text        its `packed_formats.Text`
width       bytes of a stripe
</%doc>
<%
    run = text.run
    halves = ((15, "0x4b000000", 2**23), (240, "0x49000000", 2**19))
    if text.upper:
        halves = ((15, "0x4b000000", 2**23), (15, "0x4b000000", 2**23))
%>\
#define WORDS_T uint${width}
% if run:
#define BYTES(p) convert_uint${width}(${stripes.load})
% else:
#define BYTES(p) convert_float${width}(${stripes.load})
% endif

void unpack(__global const uchar *p, const int o, __global const elem_t *s, float${width} *w)
{
% for line in text.extra.splitlines():
    ${line}
% endfor
% if run:
    const WORDS_T b = BYTES(p${f" + {text.quants}" if text.quants else ""} + o);
% for half, (mask, power, value) in enumerate(halves):
    {
        const int at = ${stripes.place("o")}${f" + {run}" if half else ""};
% if text.upper:
        const WORDS_T bits = ${"b >> 4u" if half else "b & 15u"} | (h >> (uint)(${text.upper}) & 3u) << 4u | ${power}u;
% else:
        const WORDS_T bits = b & ${mask}u | ${power}u;
% endif
        const float${width} q = as_float${width}(bits) - ${value + text.offset}.0f;
% for line in text.numbers.splitlines():
        ${line}
% endfor
        w[${half}] = ${text.weight};
    }
% endfor
% else:
    const float${width} q = BYTES(p${f" + {text.quants}" if text.quants else ""} + o);
% for line in text.numbers.splitlines():
    ${line}
% endfor
    w[0] = ${text.weight};
% endif
}
