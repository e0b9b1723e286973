"""Attention as a problem: its sizes, its direction, and which keys a query sees."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

from oclgen.problem_parts import (
    DTYPES,
    STORED_BYTES,
    ProblemError,
    Shape,
    free_text,
    require_free,
    require_known,
    require_positive,
)

Direction = Literal["fwd", "bwd_q", "bwd_kv", "bwd"]
ATTENTION_DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd_q", "bwd_kv", "bwd")
OUTPUTS: dict[Direction, tuple[str, ...]] = {
    "fwd": ("out", "lse"),
    "bwd_q": ("grad_q",),
    "bwd_kv": ("grad_k", "grad_v"),
    "bwd": ("grad_q", "grad_k", "grad_v"),
}
FIXED_DTYPES = {"lse": "fp32", "delta": "fp32", "random": "int64"}
"""Dtypes of buffers that do not have the problem's."""


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """out = softmax(scale q k^T + mask) v for each head, or a part of its gradient.

    Shapes: q [batch, heads, queries, head_dim], k [batch, kv_heads, keys, head_dim], v [batch,
    kv_heads, keys, value_dim], out like q with value_dim. `heads / kv_heads` heads of q that follow
    each other share one of k and v. lse [batch, heads, queries] is the logarithm of each row's sum
    of exponentials, +inf where a row sees nothing. Strides of batch, head and row are given at
    launch, so is the scale, which is 1 / sqrt(head_dim) by default.

    With `causal` query i sees keys 0 to i. A `window` of w > 0 lets it see keys less than w away.
    A `mask` [batch, heads, queries, keys] is added to the scores; any of its strides may be 0. With
    `dropout` a probability is kept where a random number (Philox4x32-10 of a seed and a counter,
    which lie in the buffer `random`) is below `chance`, and divided by that.

    `fwd` writes out and lse. Both gradients recompute the probabilities from lse; grad is that of
    out, and delta [batch, heads, queries] the sum of grad * out over a row. `bwd_q` writes grad_q,
    `bwd_kv` grad_k and grad_v. `bwd` writes all three, by five products of queries and keys instead
    of seven; a family for it adds the parts of a head one after the other.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    dtype: str = "fp32"
    direction: Direction = "fwd"
    causal: bool = False
    window: int = 0
    mask: bool = False
    dropout: bool = False
    free: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raise `ProblemError` where the sizes contradict each other."""
        require_positive(
            self, "batch", "heads", "kv_heads", "queries", "keys", "head_dim", "value_dim"
        )
        require_known("dtype", self.dtype, DTYPES)
        require_known("direction", self.direction, ATTENTION_DIRECTIONS)
        require_free(self)
        if self.heads % self.kv_heads:
            raise ProblemError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        if self.window < 0:
            raise ProblemError(f"window={self.window} must not be negative; 0 is none")
        if self.window and self.queries - self.window >= self.keys:
            raise ProblemError(
                f"query {self.queries - 1} sees none of {self.keys} keys by window={self.window}"
            )

    @property
    def op(self) -> str:
        """The operation's name in keys and records."""
        return "attention"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Roles of all buffers that are written."""
        return OUTPUTS[self.direction]

    @property
    def output(self) -> str:
        """Role of the first buffer that is written."""
        return self.outputs[0]

    @property
    def is_gradient(self) -> bool:
        """Whether it is a part of the gradient."""
        return self.direction != "fwd"

    @property
    def shared_by(self) -> int:
        """Heads of q for each head of k and v."""
        return self.heads // self.kv_heads

    @property
    def buffers(self) -> dict[str, Shape]:
        """Dense shape of each buffer, by role; the mask's is that of one for all heads."""
        q = (self.batch, self.heads, self.queries, self.head_dim)
        k = (self.batch, self.kv_heads, self.keys, self.head_dim)
        v, out = (*k[:3], self.value_dim), (*q[:3], self.value_dim)
        shapes: dict[str, Shape] = {"q": q, "k": k, "v": v}
        if self.direction == "fwd":
            shapes |= {"out": out, "lse": q[:3]}
        else:
            gradients = {"grad_q": q, "grad_k": k, "grad_v": v}
            written = {role: gradients[role] for role in self.outputs}
            shapes |= {"grad": out, "lse": q[:3], "delta": q[:3], **written}
        if self.mask:
            shapes["mask"] = (1, 1, self.queries, self.keys)
        if self.dropout:
            shapes["random"] = (2,)
        return shapes

    @property
    def scale(self) -> float:
        """What scores are multiplied by, unless a caller replaces it: 1 / sqrt(head_dim)."""
        return 1 / sqrt(self.head_dim)

    @property
    def pairs(self) -> int:
        """Scores of a head that are seen."""
        if not self.causal and not self.window:
            return self.queries * self.keys
        above = _clipped(self.queries, self.keys, 1 if self.causal else self.window)
        return above - (_clipped(self.queries, self.keys, 1 - self.window) if self.window else 0)

    @property
    def flops(self) -> int:
        """Multiplications and additions of the products of scores that are seen."""
        d, v = self.head_dim, self.value_dim
        products = {
            "fwd": d + v,
            "bwd_q": 2 * d + v,
            "bwd_kv": 2 * d + 2 * v,
            "bwd": 3 * d + 2 * v,
        }
        return max(1, 2 * self.batch * self.heads * self.pairs * products[self.direction])

    @property
    def bytes(self) -> int:
        """Bytes moved if every input is read once and the outputs written once."""
        total = 0
        for role, shape in self.buffers.items():
            size = STORED_BYTES[FIXED_DTYPES.get(role, self.dtype)]
            for extent in shape:
                size *= extent
            total += size
        return total

    def key(self) -> str:
        """Canonical text: `attention:8,16,16,2048,2048,64,64:fp32:fwd:causal:-:-`.

        The sizes are batch, heads, kv_heads, queries, keys, head_dim and value_dim; after the
        direction stand causal, mask and dropout or `-`, then `:w256` for a window, then the sizes
        that are free. `parse_key` reads it back.
        """
        flags = (self.causal and "causal", self.mask and "mask", self.dropout and "dropout")
        return (
            f"attention:{self.batch},{self.heads},{self.kv_heads},{self.queries},{self.keys},"
            f"{self.head_dim},{self.value_dim}:{self.dtype}:{self.direction}:"
            f"{':'.join(flag or '-' for flag in flags)}"
            f"{f':w{self.window}' if self.window else ''}{free_text(self)}"
        )


def _clipped(queries: int, keys: int, offset: int) -> int:
    """Return the sum over rows i of i + offset, no less than 0 and no more than `keys`."""
    first = min(max(0, -offset), queries)
    last = max(first, min(queries, keys - offset))
    rising = (last - first) * (first + last - 1) // 2 + (last - first) * offset
    return rising + (queries - last) * keys
