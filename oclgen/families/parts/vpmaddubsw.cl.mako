<%doc>
Products of bytes by AVX2's vpmaddubsw, for vectors of 8 lanes. It adds two products in 16 bits: the
unsigned bytes are below 16, so that sums of 16 products fit.

sums_t          sums of products of bytes: two of each lane
DOTS(sums, x, y)    adds the products of the four unsigned bytes of each number of x (uint8) and the
                    four signed ones of y (uint)
INTS(sums)      these sums as int8

vdpbf16ps.cl.mako says which compiler takes which of the two ways.
</%doc>
typedef short16 sums_t;
#ifdef __x86_64__
short16 dots_of_bytes(const uint8 x, const uint8 y)
{
    short16 sums;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(sums) : "x"(x), "x"(y));
    return sums;
}
int8 sums_of_two(const short16 sums, const short16 ones)
{
    int8 ints;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(ints) : "x"(sums), "x"(ones));
    return ints;
}
#define DOTS(sums, x, y) ((sums) + dots_of_bytes(x, (uint8)(y)))
#else
typedef char bytes32 __attribute__((ext_vector_type(32)));
short16 dots_of_bytes(bytes32 x, bytes32 y) __asm("llvm.x86.avx2.pmadd.ub.sw");
int8 sums_of_two(short16 sums, short16 ones) __asm("llvm.x86.avx2.pmadd.wd");
#define DOTS(sums, x, y) \
    ((sums) + dots_of_bytes(__builtin_astype(x, bytes32), __builtin_astype((uint8)(y), bytes32)))
#endif
#define INTS(sums) sums_of_two(sums, (short16)(1))
