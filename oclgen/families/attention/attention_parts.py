"""What the families of attention share: the text of masks, and the arguments of kernels."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeGuard

from oclgen.plan import Arg, Scalar, buffer
from oclgen.problem import AttentionProblem, Problem
from oclgen.render import render

LARGEST_DIM = 256
"""The largest head_dim and value_dim: a row must fit into registers and local memory."""
LINE_BYTES = 64
"""Bytes of a line of a processor's caches."""
CHANCE = 0.75
"""The part of the probabilities that dropout keeps unless the scalar `chance` is replaced."""
STRIDED = {
    "fwd": ("q", "k", "v", "out"),
    "bwd_q": ("q", "k", "v", "grad", "grad_q"),
    "bwd_kv": ("q", "k", "v", "grad", "grad_k", "grad_v"),
    "bwd": ("q", "k", "v", "grad", "grad_q", "grad_k", "grad_v"),
}
"""Buffers [batch, heads, rows, items] in the order of the kernels' arguments; items are dense."""


class Seen(NamedTuple):
    """Which keys a query sees, as expressions of OpenCL C in `queries` and `keys`."""

    causal: bool
    window: int

    @property
    def is_limited(self) -> bool:
        """Whether there are keys that some query does not see."""
        return self.causal or self.window > 0

    def first_key(self, query: str, tile: int = 1) -> str:
        """Return the first key that `query` sees, rounded down to whole tiles."""
        return _floor(f"max(0, {query} - {self.window - 1})" if self.window else "0", tile)

    def last_key(self, query: str) -> str:
        """Return the key after the last one that `query` sees."""
        if not self.is_limited:
            return "keys"
        return f"min(keys, {query} + {1 if self.causal else self.window})"

    def first_query(self, key: str, tile: int = 1) -> str:
        """Return the first query that sees `key`, rounded down to whole tiles."""
        if self.causal:
            return _floor(key, tile)
        return _floor(f"max(0, {key} - {self.window - 1})" if self.window else "0", tile)

    def last_query(self, key: str) -> str:
        """Return the query after the last one that sees `key`."""
        return f"min(queries, {key} + {self.window})" if self.window else "queries"


def _floor(value: str, tile: int) -> str:
    return value if tile == 1 or value == "0" else f"{value} / {tile} * {tile}"


def seen(problem: AttentionProblem) -> Seen:
    """Return which keys a query of the problem sees."""
    return Seen(problem.causal, problem.window)


def has_short_rows(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether it is attention whose rows are short enough."""
    return (
        isinstance(problem, AttentionProblem)
        and max(problem.head_dim, problem.value_dim) <= LARGEST_DIM
    )


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether it is that, and not all gradients at once, which take a work-item per head."""
    return has_short_rows(problem) and problem.direction != "bwd"


def rows_of(problem: AttentionProblem) -> int:
    """Return the rows of a head that work-groups share out: queries, or keys for their gradient."""
    return problem.keys if problem.direction == "bwd_kv" else problem.queries


def heads_of(problem: AttentionProblem) -> int:
    """Return the heads, of all batches, whose rows are shared out."""
    heads = problem.kv_heads if problem.direction == "bwd_kv" else problem.heads
    return problem.batch * heads


def arguments(problem: AttentionProblem) -> tuple[Arg, ...]:
    """Return the arguments of a kernel that computes the problem, in the templates' order.

    Each strided buffer is followed by its strides of batch, head and row, in elements, which a
    caller may replace, as it may the mask's four, the scale and dropout's chance.
    """
    args: list[Arg] = []
    for role in STRIDED[problem.direction]:
        args += [*buffer(role), *strides_of(problem, role)]
    args += [*buffer("lse")] if problem.direction == "fwd" else [*buffer("lse"), *buffer("delta")]
    if problem.mask:
        args += [*buffer("mask"), *_strides("mask", (0, 0, problem.keys, 1))]
    sizes = (problem.heads, problem.shared_by, problem.queries, problem.keys)
    args += [Scalar(size) for size in sizes]
    if problem.dropout:
        args += [Scalar(CHANCE, "float", "chance"), *buffer("random")]
    return (*args, Scalar(problem.scale, "float", "scale"))


def load_part(vec: int) -> str:
    """Return the text of a function that loads `vec` items, of which some lie beyond a row."""
    return render("attention_load_part", vec=vec)


def items_of_row(lanes: int, count: int, start: str) -> str:
    """Return a vector of `lanes` floats, of which `count` are read at `start`; the rest are 0.

    Behind the last row of a tensor there may be no memory, so no more is read than is there.

    Args:
        lanes: of the vector.
        count: items that are read, 1 to `lanes`.
        start: expression of the address of the first one.
    """
    if count == lanes:
        return f"vload{lanes}(0, {start})"
    pieces, place = [], 0
    for size in (8, 4, 2, 1):
        if count & size:
            at = f"{start} + {place}"
            pieces.append(f"vload{size}(0, {at})" if size > 1 else f"*({at})")
            place += size
    return f"(float{lanes})({', '.join([*pieces, *['0.0f'] * (lanes - count)])})"


def power_of_two(vec: int) -> str:
    """Return the text of 2^x of `vec` scores, which no call interrupts."""
    return render("attention_power_of_two", vec=vec)


def dropout(problem: AttentionProblem, vec: int, counter: str) -> dict[str, str]:
    """Return the texts by which a kernel drops probabilities, empty where it drops none.

    Args:
        problem: says whether it does.
        vec: scores at once.
        counter: C type of the counters of the first scores of heads: one, or one for each score.
    """
    if not problem.dropout:
        return {"philox": "", "kept": ""}
    return {"philox": philox(vec), "kept": render("attention_kept", vec=vec, counter=counter)}


def philox(vec: int) -> str:
    """Return the text of the random numbers by which all families drop the same probabilities."""
    return render("attention_philox", vec=vec)


Axis = Literal["batch", "head", "row", "column"]
AXES: tuple[Axis, ...] = ("batch", "head", "row", "column")


def strides_of(problem: AttentionProblem, role: str) -> list[Scalar]:
    """Return the arguments after a strided buffer: its dense strides, which may be replaced."""
    _, heads, rows, items = problem.buffers[role]
    return _strides(role, (heads * rows * items, rows * items, items))


def _strides(role: str, strides: tuple[int, ...]) -> list[Scalar]:
    pairs = zip(AXES, strides, strict=False)
    return [Scalar(stride, "long", f"{role}_{axis}") for axis, stride in pairs]


_COUNTED = re.compile(
    r"^(?:#pragma unroll[^\n]*\n)?( *for \(int (\w+) = 0; \2 < \d+; \+\+\2\))", re.MULTILINE
)
_STEPS = re.compile(r"^( *for \(int k = 0; k < depth;)", re.MULTILINE)


def unrolled(source: str) -> str:
    """Return a program whose loops of constant counts are all to be unrolled.

    The steps of products are not: a compiler would load early what all of them read.
    """
    return _STEPS.sub(r"#pragma unroll 1\n\1", _COUNTED.sub(r"#pragma unroll\n\1", source))
