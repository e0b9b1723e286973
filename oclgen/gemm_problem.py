"""Products of matrices as a problem: sizes, how operands lie, and what is added to the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeGuard

from oclgen.activations import ACTIVATIONS
from oclgen.problem_parts import (
    INTEGERS,
    PRODUCT_DTYPES,
    ProblemError,
    Shape,
    bytes_of,
    free_text,
    require_free,
    require_known,
    require_positive,
)

Activation = str
"""Name of a row of `oclgen.activations.ACTIVATIONS`."""


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """C[b] = act(op(A[b]) · op(B[b]) + bias + residual[b]), one matrix product per batch item.

    Shapes, row-major: A is [batch, m, k] ([batch, k, m] if `trans_a`), B is [batch, k, n]
    ([batch, n, k] if `trans_b`), C is [batch, m, n]. `bias` is "n" (a vector of n, as in
    `torch.nn.Linear`) or "m". With `residual` a matrix is added that lies as C does, elsewhere or
    there. With `shared_a` or `shared_b` all batch items use one A or B. Row and batch strides are
    given at launch (see `Strides`), so they are no part of the problem. Kernels of a problem with
    `free` sizes have one text for all of them; the values here are those of one call, or typical
    ones by which a variant is chosen. A product of `INTEGERS` is their int32 sums alone.

    Batch items of a `ragged` size differ in it, as those of torch's `grouped_mm` (the experts of a
    mixture). They lie one behind the other, and `ends` [batch] of int32, which rises, says in the
    device's memory where each ends. Of "m" they are rows of A and C, which is zero behind the last
    one; of "k" rows of A and B. The size here is their mean, and free.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    trans_a: bool = False
    trans_b: bool = False
    batch: int = 1
    shared_a: bool = False
    shared_b: bool = False
    bias: Literal["none", "m", "n"] = "none"
    activation: Activation = "none"
    residual: bool = False
    free: frozenset[str] = frozenset()
    ragged: Literal["", "m", "k"] = ""

    def __post_init__(self) -> None:
        """Raise `ProblemError` for sizes below one, unknown names, and what cannot be together."""
        require_positive(self, "m", "n", "k", "batch")
        require_free(self)
        require_known("dtype", self.dtype, PRODUCT_DTYPES)
        require_known("bias", self.bias, ("none", "m", "n"))
        require_known("activation", self.activation, ACTIVATIONS)
        if self.dtype in INTEGERS and (
            self.bias != "none" or self.activation != "none" or self.residual
        ):
            raise ProblemError(
                f"products of {self.dtype} are int32 sums, without bias, activation and residual"
            )
        if self.ragged:
            self._require_rows()

    def _require_rows(self) -> None:
        """Refuse ragged batch items that are no rows one behind the other, and other terms."""
        require_known("ragged", self.ragged, ("m", "k"))
        if self.ragged not in self.free:
            raise ProblemError(
                f"batch items differ in {self.ragged}, so it has to be free; free are "
                f"{sorted(self.free)}"
            )
        of_k = self.ragged == "k"
        if self.trans_a != of_k or (of_k and self.trans_b):
            raise ProblemError(
                f"batch items that differ in {self.ragged} are rows of memory: "
                f"{'A lies along m, and B along n' if of_k else 'A lies along k'}"
            )
        has_terms = self.residual or self.bias != "none" or self.activation != "none"
        if has_terms or self.shared_a or self.shared_b or self.dtype in INTEGERS:
            raise ProblemError(
                "batch items that differ in size are of floats, share no matrix, and have no bias, "
                "activation and residual"
            )

    @property
    def op(self) -> str:
        """The operation's name in keys and records."""
        return "gemm"

    @property
    def output(self) -> str:
        """Role of the buffer that is written."""
        return "c"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Roles of all buffers that are written."""
        return (self.output,)

    @property
    def buffers(self) -> dict[str, Shape]:
        """Dense row-major shape of each buffer, by role."""
        a = (self.k, self.m) if self.trans_a else (self.m, self.k)
        b = (self.n, self.k) if self.trans_b else (self.k, self.n)
        shapes: dict[str, Shape] = {
            "a": (1 if self.shared_a else self.batch, *a),
            "b": (1 if self.shared_b else self.batch, *b),
            "c": (self.batch, self.m, self.n),
        }
        if self.bias != "none":
            shapes["bias"] = (self.m if self.bias == "m" else self.n,)
        if self.residual:
            shapes["residual"] = shapes["c"]
        if self.ragged:
            shapes["ends"] = (self.batch,)
        return shapes

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product, epilogue not counted."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes moved if every input is read once and the output written once."""
        return bytes_of(self.buffers, self.dtype, other_dtypes(self.dtype))

    def key(self) -> str:
        """Canonical text, `parse_key` reads it back: `gemm:1024x1024x1024:fp32:nt:b1:-:-:none`.

        A residual stands after it, if there is one, then the size that is ragged, as `:ragged_m`,
        then the sizes that are free, as `:any_k_m`.
        """
        trans = ("t" if self.trans_a else "n") + ("t" if self.trans_b else "n")
        shared = ("a" if self.shared_a else "") + ("b" if self.shared_b else "") or "-"
        bias = "-" if self.bias == "none" else self.bias
        return (
            f"gemm:{self.m}x{self.n}x{self.k}:{self.dtype}:{trans}:b{self.batch}"
            f":{shared}:{bias}:{self.activation}{':residual' if self.residual else ''}"
            f"{f':ragged_{self.ragged}' if self.ragged else ''}{free_text(self)}"
        )


def is_ragged(problem: object) -> TypeGuard[GemmProblem]:
    """Say whether it is a product whose batch items differ in a size."""
    return isinstance(problem, GemmProblem) and problem.ragged != ""


def other_dtypes(dtype: str) -> dict[str, str]:
    """Return the dtypes of a product's buffers that do not have its own, by role."""
    return {"c": "int32"} if dtype in INTEGERS else {"ends": "int32"}
