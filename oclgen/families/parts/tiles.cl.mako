<%doc>
The tile registers of AMX, and its product of 16-bit floats with sums in fp32 (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 1, chapter 18). A tile has 16 rows of 64 bytes.

TILE_REGISTERS          declares what the others use, at the head of a kernel
SET_TILES(rows, bytes, first_a, first_b)
                        sizes of the registers, which clears them: sums and operands A have `rows`
                        rows, A has `bytes` bytes in each, B a row for each 4 of these. Registers
                        below `first_a` hold sums, those from `first_b` on hold B
SET_TILES_OF_TWO(rows, bytes, narrow, first)
                        the same with one operand A and one B behind `first` sums, and behind these
                        a second A and B, of `narrow` bytes
TILE_ZERO(t)            clears register t
TILE_LOAD(t, p, step), TILE_STORE(t, p, step)
                        reads or writes rows that lie `step` bytes apart
TILE_DOT(c, a, b)       c += a b: a row of A is pairs along k, a row of B one pair for each of
                        16 columns
TILES_DONE              lets the processor forget the registers
NEAREST_BF16, STORE16   of `vdpbf16ps`, where operands are bf16: processors with AMX round by it

The numbers of registers are digits. No vector stands in the assembly, which therefore also passes a
compiler whose target is SPIR-V. The product of fp16 is written as bytes, which differ from those of
bf16 in one: LLVM 15 does not know it.

half        operands are fp16, else bf16
</%doc>
#define TILE_REGISTERS
#define SET_TILES(rows, bytes, first_a, first_b) set_tiles(rows, bytes, first_a, first_b, bytes, 8)
#define SET_TILES_OF_TWO(rows, bytes, narrow, first) set_tiles(rows, bytes, first, (first) + 1, narrow, (first) + 2)
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, p, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((long)(step)) : "memory")
#define TILE_STORE(t, p, step) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((long)(step)) : "memory")
% if half:
#define TILE_DOT(c, a, b) __asm__ volatile(".byte 0xc4, 0xe2, (15 - " #b ") * 8 + 3, 0x5c, 0xc0 + " #c " * 8 + " #a : :)
% else:
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
% endif
#define TILES_DONE __asm__ volatile("tilerelease" : :)

// From register `second` on there is one more A, and B behind it, of other bytes.
void set_tiles(
    const int rows, const int bytes, const int first_a, const int first_b, const int other, const int second)
{
    // palette 1; from byte 16 on the bytes of the registers' rows, from byte 48 on their rows
    uchar sizes[64] = {1};
    for (int t = 0; t < 8; ++t) {
        const int of_a = t < second ? bytes : other;
        sizes[16 + 2 * t] = (t >= first_a && t < first_b) || t == second ? of_a : 64;
        sizes[48 + t] = t < first_b || t == second ? rows : of_a / 4;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(sizes) : "memory");
}
% if not half:
<%include file="vdpbf16ps.cl.mako" args="dot=False"/>
% endif
