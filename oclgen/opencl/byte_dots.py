"""Instructions that multiply four signed bytes by four, and add the products to an int.

Sources: Khronos, "cl_khr_integer_dot_product"; AMD, "RDNA 2" and "RDNA 3" instruction set
architecture guides (V_DOT4), by the names of LLVM's builtins; NVIDIA, "PTX ISA", `dp4a`; Intel,
"Xe" instruction set, DP4A, by the name that the graphics compiler has for it.
"""

from __future__ import annotations

KHR = "cl_khr_integer_dot_product"
"""The extension that declares `dot_4x8packed_ss_int`."""
INTEL_GPUS = "cl_intel_driver_diagnostics"
"""An extension of Intel's GPUs, old and new, that its runtime for processors lacks."""
PLAIN = "plain"
"""What every device has: products in OpenCL C, each added to a sum of its own."""
PAIRS = "pairs"
"""The same, where products of neighbours are added first: some compilers for x86 (Intel's) make one
instruction of that, which multiplies numbers of 16 bits and adds; others (LLVM 15) slow code."""
IN_C = {PLAIN: 1, PAIRS: 2}
"""Products that are added to one of the vector's sums, by the ways in OpenCL C."""
INSTRUCTIONS: dict[str, str] = {
    # Intel's GPUs from Xe on
    "dp4a_intel": """int __builtin_IB_dp4a_ss(int sum, int x, int y, bool saturate);
int dot4(const uint x, const uint y, const int sum)
{
    return __builtin_IB_dp4a_ss(sum, (int)x, (int)y, false);
}""",
    # Vega 20, RDNA2, CDNA
    "sdot4": """int dot4(const uint x, const uint y, const int sum)
{
    return __builtin_amdgcn_sdot4((int)x, (int)y, sum, false);
}""",
    # from RDNA3 on, where each operand says whether it is signed
    "sudot4": """int dot4(const uint x, const uint y, const int sum)
{
    return __builtin_amdgcn_sudot4(true, (int)x, true, (int)y, sum, false);
}""",
    # NVIDIA's GPUs from sm_61 on
    "dp4a": """int dot4(const uint x, const uint y, const int sum)
{
    int result;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
    return result;
}""",
    # whatever announces the extension; last, since others may do in two instructions what is one
    "khr_dot": """#ifndef __opencl_c_integer_dot_product_input_4x8bit_packed // from OpenCL C 3.0 on
int __attribute__((overloadable)) dot_4x8packed_ss_int(uint x, uint y);
#endif
int dot4(const uint x, const uint y, const int sum)
{
    return sum + dot_4x8packed_ss_int(x, y);
}""",
}
"""The OpenCL C of `dot4(x, y, sum)` by the names that `oclgen.opencl.probe` asks for."""


def text(unit: str, width: int) -> str:
    """Return the OpenCL C by which `width` bytes are multiplied by as many.

    The kernel declares `wide_t` operands and `sums_t` sums, and calls WIDEN(bytes), a
    `char{width}`, MULTIPLY(x, y, sums), which returns the new sums, and TOTAL(sums), an int.

    Args:
        unit: a name of `IN_C` or `INSTRUCTIONS`.
        width: bytes of an operand: 4, 8 or 16.
    """
    return _in_c(width, IN_C[unit]) if unit in IN_C else _by_words(unit, width // 4)


def _in_c(width: int, added: int) -> str:
    count = width // added
    sums = [w for w in (2, 4, 8, 16) if w <= count]
    return "\n".join(
        [
            # processors multiply numbers of 16 bits faster than those of 32
            f"typedef short{width} wide_t;",
            f"typedef int{count} sums_t;",
            f"#define WIDEN(bytes) convert_short{width}(bytes)",
            "sums_t MULTIPLY(const wide_t x, const wide_t y, const sums_t sums)",
            "{",
            f"    const int{width} products = convert_int{width}(x) * convert_int{width}(y);",
            f"    return sums + {'(products.even + products.odd)' if added == 2 else 'products'};",
            "}",
            "#define SUM1(v) (v)",
            *(f"#define SUM{w}(v) SUM{w // 2}((v).lo + (v).hi)" for w in sums),
            f"#define TOTAL(sums) SUM{count}(sums)",
        ]
    )


def _by_words(unit: str, words: int) -> str:
    kind = "uint" if words == 1 else f"uint{words}"
    chain = "sums"
    for word in range(words):
        part = f".s{word}" if words > 1 else ""
        chain = f"dot4((x){part}, (y){part}, {chain})"
    return "\n".join(
        [
            INSTRUCTIONS[unit],
            f"typedef {kind} wide_t;",
            "typedef int sums_t;",
            f"#define WIDEN(bytes) as_{kind}(bytes)",
            f"#define MULTIPLY(x, y, sums) {chain}",
            "#define TOTAL(sums) (sums)",
        ]
    )
