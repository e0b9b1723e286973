"""Formats of packed weights as OpenCL C: where numbers lie in a block, and what a weight is.

A kernel unpacks by stripes: `width` neighbouring bytes, which hold `width` weights, or twice as
many where a byte holds two. A new format is an entry of `TEXTS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from oclgen.families.parts.expressions import plus
from oclgen.packed_problem import FORMATS, Format, PackedProblem
from oclgen.render import render

WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}
"""Types by the bytes that they load at once, from addresses that are multiples of these."""
ALIGNED = 16
"""Bytes at whose multiples packed weights begin."""


@dataclass(frozen=True, slots=True)
class Text:
    """A format's blocks in OpenCL C.

    In the texts, p points to a block, s to its group's entry of `scales`, `at` is the first of the
    weights' places in the block, and o the first of the stripe's places among the quants.

    Attributes:
        quants: bytes of a block in front of the quants.
        run: bytes in a run. Their low halves are neighbouring weights, and their high halves the
            weights that follow these; 0 where a byte is one weight.
        numbers: declarations of what `weight` uses.
        weight: vector of weights, of their quants q as floats.
        offset: what quants are more than q, where a byte is two.
        upper: by how much `h` is shifted so that its last two bits are the quants' fifth and
            sixth, where a byte is two.
        extra: declaration of `h`, for `upper`.
        shared: neighbouring weights of a block that have the same numbers; 0: all.
        quads: declarations of vectors `d` and `z`, the numbers of four groups of `shared` weights
            from group `first` on, a multiple of four, where that is less work than each by itself.
    """

    quants: int
    run: int
    numbers: str
    weight: str
    offset: int = 0
    upper: str = ""
    extra: str = ""
    shared: int = 0
    quads: str = ""


_HALF = "const float d = vload_half(0, (__global const half *)p);"
_TWO = f"{_HALF}\nconst float z = vload_half(1, (__global const half *)p);"
_INT4 = Text(0, 16, "const float d = LOAD1(s);", "q * d", offset=8)
_INT4_ZERO = replace(
    _INT4, numbers="const float d = LOAD1(s), z = LOAD1(s + 1);", weight="q * d + z"
)
_NUMBERS_K = """\
const int g = at / 32;
const float d = vload_half(0, (__global const half *)p) * (float)(g < 4 ? p[4 + g] & 63 : (p[8 + g] & 15) | (p[g] >> 6 << 4));
const float z = vload_half(1, (__global const half *)p) * (float)(g < 4 ? p[8 + g] & 63 : p[8 + g] >> 4 | (p[4 + g] >> 6 << 4));"""  # noqa: E501
_QUADS_K = """\
const uint scales_0 = WORD(p + 4), minima_0 = WORD(p + 8), both_4 = WORD(p + 12);
const uint s = first ? (both_4 & 0x0f0f0f0fu) | (scales_0 >> 2 & 0x30303030u) : scales_0 & 0x3f3f3f3fu;
const uint t = first ? (both_4 >> 4 & 0x0f0f0f0fu) | (minima_0 >> 2 & 0x30303030u) : minima_0 & 0x3f3f3f3fu;
const float4 d = vload_half(0, (__global const half *)p) * convert_float4(as_uchar4(s));
const float4 z = vload_half(1, (__global const half *)p) * convert_float4(as_uchar4(t));"""  # noqa: E501
TEXTS: dict[str, Text] = {
    "int8": Text(0, 0, "", "q"),
    **{name: _INT4_ZERO if one.zeros else _INT4 for name, one in FORMATS.items() if one.group},
    "q4_0": Text(2, 16, _HALF, "q * d", offset=8),
    "q4_1": Text(4, 16, _TWO, "q * d + z"),
    "q8_0": Text(2, 0, _HALF, "q * d"),
    # 12 bytes have 8 scales and 8 minima of 6 bits
    "q4_k": Text(16, 32, _NUMBERS_K, "q * d - z", shared=32, quads=_QUADS_K),
    # lower 4 bits, upper 2 bits, scales of 16 weights each, and the scale of these
    "q6_k": Text(
        0,
        64,
        "const float d = vload_half(104, (__global const half *)p)"
        " * (float)((__global const char *)p)[192 + at / 16];",
        "q * d",
        offset=32,
        upper="at % 128 / 32 * 2",
        extra="const WORDS_T h = BYTES(p + 128 + o / 64 * 32 + o % 32);",
        shared=16,
    ),
}


_PAIR = "const float2 pair = vload_half2(0, (__global const half *)p);\nconst float d = pair.x"
PAIRED = {"q4_0": f"{_PAIR};", "q4_1": f"{_PAIR}, z = pair.y;", "q8_0": f"{_PAIR};"}
"""The same numbers, of which the first is loaded with the two bytes behind it. Compilers for x86
load a single half into a register whose other lanes stay (`vpinsrw`): the load then waits for what
was in that register last, which may be the sums."""


@dataclass(frozen=True, slots=True)
class Stripes:
    """A format's blocks, cut into stripes of `width` bytes of quants.

    Attributes:
        format: of the weights.
        width: bytes of a stripe.
        paired: whether numbers are loaded as `PAIRED` says, where it says so.
    """

    format: Format
    width: int
    paired: bool = False

    @property
    def text(self) -> Text:
        """The format in OpenCL C."""
        text = TEXTS[self.format.name]
        if self.paired and (numbers := PAIRED.get(self.format.name)):
            return replace(text, numbers=numbers)
        return text

    @property
    def halves(self) -> int:
        """Vectors of weights that a stripe holds."""
        return 2 if self.text.run else 1

    @property
    def count(self) -> int:
        """Stripes of a block."""
        return self.format.block // (self.halves * self.width)

    def of_row(self, k: int) -> int:
        """Return the stripes of a row of `k` weights."""
        return k // (self.halves * self.width)

    @property
    def word(self) -> int:
        """Bytes that are loaded at once, from multiples of that."""
        return gcd(self.format.block_bytes, self.text.quants, self.width, ALIGNED)

    @property
    def load(self) -> str:
        """The load of a stripe's bytes at `p`."""
        kind, count = WORDS[self.word], self.width // self.word
        pointer = f"(__global const {kind} *)(p)"
        loaded = f"*{pointer}" if count == 1 else f"vload{count}(0, {pointer})"
        kind = "uchar" if self.text.run else "char"
        return f"as_{kind}{self.width}({loaded})"

    def place(self, o: str) -> str:
        """Return the place in its block of the first weight of the stripe at byte `o` of quants."""
        run = self.text.run
        return f"{o} / {run} * {2 * run} + {o} % {run}" if run else o

    def scale(self, row: str, first: str, behind: int = 0) -> str:
        """Return a pointer to the entry of `scales` for a block of a row.

        Args:
            row: of w.
            first: a block before it, a multiple of the blocks that are unpacked together.
            behind: how many blocks it lies after that one.
        """
        if not self.format.group:
            return "0"
        ratio = self.format.group // self.format.block
        group = f"({first}{plus(behind)}) / {ratio}"
        entry = f"({group}) * (long)n + {row}"
        return f"scales + 2 * ({entry})" if self.format.zeros else f"scales + {entry}"

    @property
    def preamble(self) -> str:
        """The function `unpack`, which writes a stripe's weights."""
        return render("packed_unpack_stripe", stripes=self, text=self.text, width=self.width)


def stripes(problem: PackedProblem, width: int, *, paired: bool = False) -> Stripes:
    """Return the stripes of a problem's weights.

    Args:
        problem: whose weights are cut.
        width: bytes of a stripe.
        paired: as in `Stripes`.
    """
    return Stripes(problem.packing, width, paired)
