<%doc>
DOT_PAIRS(acc, x, y): adds to each of 16 fp32 sums the products of two pairs of bf16, by
AVX512-BF16's vdpbf16ps. `acc` is a float16 variable, `x` and `y` are uint16 with one pair per
element.
NEAREST_BF16(x): 16 floats as bf16, ties to even, by its vcvtneps2bf16, where the same in integers takes
five instructions. STORE16 stores by it.

A compiler whose target is the processor takes assembly, and may hide the intrinsic behind a
processor it does not know. One whose target is SPIR-V knows no vector register in assembly, but
hands a function of an LLVM intrinsic's name to the compiler behind it, which has it.

dot     DOT_PAIRS, too: processors with AMX have tiles for it
</%doc>
<%page args="dot=True"/>
#ifdef __x86_64__
% if dot:
#define DOT_PAIRS(acc, x, y) __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
% endif
ushort16 nearest_bf16(float16 x)
{
    ushort16 nearest;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(nearest) : "v"(x));
    return nearest;
}
#define NEAREST_BF16(x) nearest_bf16(x)
#else
% if dot:
typedef __bf16 pairs16 __attribute__((ext_vector_type(32)));
float16 dot_pairs(float16 acc, pairs16 x, pairs16 y) __asm("llvm.x86.avx512bf16.dpbf16ps.512");
#define DOT_PAIRS(acc, x, y) ((acc) = dot_pairs(acc, __builtin_astype(x, pairs16), __builtin_astype(y, pairs16)))
% endif
typedef __bf16 nearest16 __attribute__((ext_vector_type(16)));
nearest16 nearest_bf16(float16 x) __asm("llvm.x86.avx512bf16.cvtneps2bf16.512");
#define NEAREST_BF16(x) __builtin_astype(nearest_bf16(x), ushort16)
#endif
#undef STORE16
#define STORE16(v, p) vstore16(NEAREST_BF16(v), 0, (p))
