<%doc>
What packed weights are to `packed_mma`: bytes of local memory, pairs of quants, and numbers.

tile, text, elem_bytes  as in `packed_mma`
</%doc>
<%!
    from oclgen.families.packed.packed_mma_text import pair
%>\
<%def name="functions()">\
<% stripe, magic, pieces = tile.stripes.text, text.magic, text.pieces %>\
#define WORD(p) (*(__local const uint *)(p))
% if tile.stripes.word == 4:
#define ANY_WORD(p) WORD(p)
% else:
#define ANY_WORD(p) ((uint)((__local const ushort *)(p))[0] | (uint)((__local const ushort *)(p))[1] << 16)
% endif
#define WORDS_T uint
#define BYTES(p) ANY_WORD((p) + ${tile.stretch} * part)
% if tile.format.group != 0:

/* what sums of quants from place `at` of the block at p are multiplied by, and what sums of x are */
float2 numbers(__local const uchar *p, const int at, __global const elem_t *s)
{
% for line in text.numbers.splitlines():
    ${line}
% endfor
    return (float2)(d, ${text.zero_of("d", "z")});
}
% endif

/* four quants of four packed bytes: the pairs of the even and of the odd ones */
% if stripe.run:
uint2 quants(const uint bytes, const int high${", const uint upper, const uint shift" if stripe.upper else ""})
{
% if stripe.upper:
    const uint top = shift < 4 ? upper << (4 - shift) : upper >> (shift - 4);
    const uint all = masked(bytes >> (4 * high), 0x0f0f0f0fu, top & 0x30303030u);
    uint even = even_bytes(all, ${hex(magic >> 8)}u), odd = odd_bytes(all, ${hex(magic >> 8)}u);
% else:
    uint even = masked(bytes >> (4 * high), 0x000f000fu, ${pair(magic)});
    uint odd = masked(bytes >> (4 * high + 8), 0x000f000fu, ${pair(magic)});
% endif
% if text.is_exact:
    even = difference(even, ${pair(magic | stripe.offset)});
    odd = difference(odd, ${pair(magic | stripe.offset)});
% endif
    return (uint2)(even, odd);
}
% elif not magic:
uint2 quants(const uint bytes)
{
    const uint all = bytes ^ 0x80808080u;
% if text.is_exact:
    return (uint2)(difference(even_bytes(all, 0u), 0x00800080u), difference(odd_bytes(all, 0u), 0x00800080u));
% else:
    return (uint2)(even_bytes(all, 0u), odd_bytes(all, 0u));
% endif
}
% else:
uint2 quants(const uint bytes)
{
    const uint2 low = (uint2)(
        masked(bytes, 0x007f007fu, ${pair(magic)}), masked(bytes >> 8, 0x007f007fu, ${pair(magic)}));
    const uint2 signs = (uint2)(
        masked(bytes, 0x00800080u, ${pair(magic)}), masked(bytes >> 8, 0x00800080u, ${pair(magic)}));
    return (uint2)(difference(low.x, signs.x), difference(low.y, signs.y));
}
% endif

/* the pieces of four or eight neighbours of x, as the pairs of the even and of the odd of each four */
void split(const ${text.raw} value, uint (*pairs)[${pieces}][2])
{
% if elem_bytes == 2:
% for four in range(text.items // 4):
<% low, high = ("x", "y") if four == 0 else ("z", "w") %>\
    pairs[${four}][0][0] = low_halves(value.${low}, value.${high});
    pairs[${four}][0][1] = high_halves(value.${low}, value.${high});
% endfor
% else:
    float4 rest = value;
#pragma unroll
    for (int piece = 0; piece < ${pieces}; ++piece) {
        const uint even = pair_of(rest.x, rest.z), odd = pair_of(rest.y, rest.w);
        pairs[0][piece][0] = even;
        pairs[0][piece][1] = odd;
        rest -= (float4)(low_of(even), low_of(odd), high_of(even), high_of(odd));
    }
% endif
}
</%def>\
