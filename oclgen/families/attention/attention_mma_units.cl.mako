<%doc>
What attention on matrix units asks of them, one instruction each: `ldmatrix` and `mma.sync`.

fragment(at) loads a 16 x 16 block of which each work-item of a warp names a chunk of 8 neighbours:
items 0 to 7 the rows of the first quarter, and so on. fragment_trans(at) transposes each quarter.
MMA(c, a, b0, b1) adds a 16 x 16 block times a 16 x 8 block to the 16 x 8 block c: of it a work-item
holds two neighbours in row lane / 4 and two in the row 8 below, at column lane % 4 * 2.

Items of fp32 are twice as large: blocks have half as many columns, a work-item a chunk of 4
neighbours, and MMA multiplies 16 x 8 by 8 x 8 in tf32. STAYS_IN_LOOP(value) hides from the
compiler that a fragment is the same in every turn.

copies      text of attention_units.cl.mako
dtype       "fp16", "bf16" or "fp32"
</%doc>
<%
    whole = dtype == "fp32"
    type_name = {"fp16": "f16", "bf16": "bf16", "fp32": "tf32"}[dtype]
    fragments = (("fragment", ""),) if whole else (("fragment", ""), ("fragment_trans", ".trans"))
%>\
${copies}
% if not whole:
/* two neighbours as they are stored, rounded to nearest even */
uint pair_of(const float low, const float high)
{
    uint pair;
    __asm__("cvt.rn.${type_name}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

% endif
% for name, kind in fragments:
uint4 ${name}(const local_t at)
{
    uint x, y, z, w;
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4${kind}.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(at) : "memory");
    return (uint4)(x, y, z, w);
}

% endfor
% if whole:
#define STAYS_IN_LOOP(value) __asm__ volatile("" : "+r"((value).x), "+r"((value).y), "+r"((value).z), "+r"((value).w))
% endif
#define MMA(c, a, b0, b1) __asm__ volatile( \
    "mma.sync.aligned.m16n8k${8 if whole else 16}.row.col.f32.${type_name}.${type_name}.f32 " \
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
    : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
    : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "r"(b0), "r"(b1))
