<%doc>
Products of bytes by AVX512-VNNI's vpdpbusd, for vectors of 16 lanes.

sums_t          sums of products of bytes, by lane
DOTS(sums, x, y)    adds the products of the four unsigned bytes of each number of x (uint16) and the
                    four signed ones of y (uint)
INTS(sums)      these sums as int16

vdpbf16ps.cl.mako says which compiler takes which of the two ways.
</%doc>
typedef int16 sums_t;
#ifdef __x86_64__
int16 dots_of_bytes(int16 sums, const uint16 x, const uint16 y)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(y));
    return sums;
}
#define DOTS(sums, x, y) dots_of_bytes(sums, x, (uint16)(y))
#else
typedef char bytes64 __attribute__((ext_vector_type(64)));
int16 dots_of_bytes(int16 sums, bytes64 x, bytes64 y) __asm("llvm.x86.avx512.vpdpbusd.512");
#define DOTS(sums, x, y) dots_of_bytes(sums, __builtin_astype(x, bytes64), __builtin_astype((uint16)(y), bytes64))
#endif
#define INTS(sums) (sums)
