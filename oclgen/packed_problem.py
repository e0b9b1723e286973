"""Products with packed weights as a problem: sizes, and the formats that weights are packed in."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from oclgen.problem_parts import (
    DTYPES,
    ProblemError,
    Shape,
    free_text,
    require_free,
    require_known,
    require_positive,
)

PACKED_DTYPES = {"w": "uint8"}
"""Dtypes of buffers that do not have the problem's."""


@dataclass(frozen=True, slots=True)
class Format:
    """How the weights of a row are packed into blocks, one after the other.

    Attributes:
        name: in keys.
        block: weights of a block.
        block_bytes: bytes of a block.
        group: weights that share an entry of the buffer `scales`: 0 where each row has one, None
            where scales lie in the blocks.
        zeros: whether an entry of `scales` is a scale and a zero, two items.
        ggml_type: GGUF's number of the format, None where it is none of GGUF's.
    """

    name: str
    block: int
    block_bytes: int
    group: int | None = None
    zeros: bool = False
    ggml_type: int | None = None

    def row_bytes(self, k: int) -> int:
        """Return the bytes of a row of `k` weights, a multiple of the block."""
        return k // self.block * self.block_bytes

    def scales(self, n: int, k: int) -> Shape | None:
        """Return the shape of `scales` for `n` rows of `k` weights, None where there are none."""
        if self.group is None:
            return None
        if self.group == 0:
            return (n,)
        return (k // self.group, n, 2) if self.zeros else (k // self.group, n)


INT4_GROUPS = (32, 64, 128, 256)
_LISTED = (
    Format("int8", 16, 16, group=0),
    *(Format(f"int4_{group}", 32, 16, group) for group in INT4_GROUPS),
    *(Format(f"int4_{group}z", 32, 16, group, zeros=True) for group in INT4_GROUPS),
    Format("q4_0", 32, 18, ggml_type=2),
    Format("q4_1", 32, 20, ggml_type=3),
    Format("q8_0", 32, 34, ggml_type=8),
    Format("q4_k", 256, 144, ggml_type=12),
    Format("q6_k", 256, 210, ggml_type=14),
)
FORMATS: dict[str, Format] = {one.name: one for one in _LISTED}
"""Formats by name. `int8` is a signed byte for each weight. `int4_G` has 32 weights in 16 bytes, as
q4_0 has: low halves are the first 16 weights, high halves the others, each 8 more than its value;
G weights of a row share a scale, which `scales` [k / G, n] has, and with `z` [k / G, n, 2] a zero,
too: a weight is (q - 8) * scale + zero. Those with a q are GGUF's, of the same names."""


@dataclass(frozen=True, slots=True)
class PackedProblem:
    """y = x w^T, where w is packed: a linear layer whose weights have 4 to 8 bits.

    Shapes: x [m, k] and y [m, n] of `dtype`, whose row strides are given at launch; w [n, bytes of
    a row] as its `format` says, `scales` of `dtype` if the format has them there. w begins at a
    multiple of 16 bytes. With `free` {"m"} kernels take m as an argument.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    format: str = "q4_0"
    free: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raise `ProblemError` for sizes below one or no whole blocks, and unknown names."""
        require_positive(self, "m", "n", "k")
        require_known("dtype", self.dtype, DTYPES)
        require_known("format", self.format, FORMATS)
        require_free(self)
        unit = max(self.packing.block, self.packing.group or 0)
        if self.k % unit:
            raise ProblemError(
                f"k={self.k} is no multiple of {unit}, the weights of a block or group of "
                f"{self.format}"
            )

    @property
    def op(self) -> str:
        """The operation's name in keys and records."""
        return "packed"

    @property
    def packing(self) -> Format:
        """How the weights are packed."""
        return FORMATS[self.format]

    @property
    def output(self) -> str:
        """Role of the buffer that is written."""
        return "y"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Roles of all buffers that are written."""
        return (self.output,)

    @property
    def buffers(self) -> dict[str, Shape]:
        """Dense shape of each buffer, by role."""
        packing = self.packing
        shapes: dict[str, Shape] = {
            "x": (self.m, self.k),
            "w": (self.n, packing.row_bytes(self.k)),
        }
        if scales := packing.scales(self.n, self.k):
            shapes["scales"] = scales
        return {**shapes, "y": (self.m, self.n)}

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product, unpacking not counted."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes moved if every input is read once and the output written once."""
        items = sum(prod(shape) for role, shape in self.buffers.items() if role != "w")
        return items * DTYPES[self.dtype] + prod(self.buffers["w"])

    def key(self) -> str:
        """Canonical text, `parse_key` reads it back: `packed:1x4096x4096:bf16:int4_128z`.

        After the format stands `:any_m` if m is free.
        """
        return f"packed:{self.m}x{self.n}x{self.k}:{self.dtype}:{self.format}{free_text(self)}"
