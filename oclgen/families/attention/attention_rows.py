"""Attention of few queries on processors, as in decoding: a work-item reads keys as they lie.

With many queries it pays to turn keys for register tiles, as `attention_register` does. It has all
gradients at once, none alone, and no dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Range, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div
from oclgen.problem import DTYPES, AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_rows"
KERNELS = {"fwd": NAME, "bwd": "attention_rows_grad"}
WIDTHS = (4, 8, 16)
"""Lanes of a vector, and keys whose scores are one."""
MOST_ROWS = 16
"""Rows of a head of k and v beyond which turning the keys once pays."""
MOST_GUESSED = 4
"""Rows of a head of k and v beyond which attention_lanes is guessed, if heads keep all cores busy.
Few rows are those of a token, whose keys and values are a cache: the weights of all layers have
passed since the last token, so that they come from memory. Those that are asked for ahead come
sooner than those of tiles. On Zen 4 with 265 keys, once other 16 MiB have passed, 3 rows take 0.59
of the time of `attention_lanes` with AVX2's vectors and 0.83 with those of AVX-512. With keys in
the cache they take up to 1.7 and 1.3 of it. More rows gain less."""
MOST_AT_ONCE = 4
"""Rows of a work-item that are guessed, if work-items are many. 3 rows of 300 keys take 0.7 of the
time of 2 and 1, and 4 rows 0.75 of that of 2 and 2, though of 128 items some leave registers."""
AHEAD = 32
"""Keys asked for ahead: 2048 keys of 32 heads, one query, bf16, take 2.2 ms in place of 2.9 on a
core whose memory others use, too; 16 and 64 keys are as good, the first cache in place of the
second is worse."""
GROUPS_PER_UNIT = 4
"""Work-items that a core wants before rows share what they read."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch", "queries", "keys"})

    rows: Annotated[int, Range(1, 4)]
    vec: Vector
    ahead: Annotated[int, Range(0, 256)] = 0

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec not in WIDTHS:
            return f"vec={self.vec} must be of {WIDTHS}"
        if problem.head_dim % self.vec or problem.value_dim % self.vec:
            return (
                f"rows of {problem.head_dim} and {problem.value_dim} elements are no whole vectors "
                f"of {self.vec}"
            )
        if self.ahead and problem.is_gradient:
            return f"ahead={self.ahead}: only the forward pass asks for keys ahead"
        if problem.dropout:
            return "it drops no probabilities; attention_register does"
        return None

    def local_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of local memory that a kernel declares."""
        if problem.direction == "fwd":
            return 0
        items = 2 * problem.head_dim + problem.value_dim + 2 * self.vec
        return FLOAT_BYTES * MOST_ROWS * items

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(KERNELS[problem.direction], (1, 1, 1), self.local_bytes(problem)),))


DEFAULT = Config(rows=1, vec=4)
TRAITS = Traits(rank=495, for_cpus=True)


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        parts.has_short_rows(problem)
        and problem.direction in KERNELS
        and problem.queries * problem.shared_by <= MOST_ROWS
    )


def guesses(problem: AttentionProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind != "cpu":
        return []
    wide = max(4, min(16, limits.native_float_width))
    all_rows, rows = problem.queries * problem.shared_by, 1
    if problem.direction == "fwd":
        heads = problem.batch * problem.kv_heads
        if all_rows > MOST_GUESSED and heads >= limits.compute_units:
            return []  # attention_lanes is 1.2 to 2.8 times as fast
        wanted = ceil_div(GROUPS_PER_UNIT * limits.compute_units, heads)  # work-items of a head
        shares = max(min(wanted, all_rows), ceil_div(all_rows, MOST_AT_ONCE))
        rows = ceil_div(all_rows, shares)
    ahead = 0 if problem.is_gradient else AHEAD
    return [Config(rows, vec, ahead) for vec in WIDTHS[::-1] if vec <= wide]


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the one launch that computes the problem."""
    all_rows = problem.queries * problem.shared_by
    own = ceil_div(all_rows, config.rows) if problem.direction == "fwd" else 1
    launch = Launch(
        text=LazyText(lambda: _text(problem, config)),
        kernel=KERNELS[problem.direction],
        global_size=(own, problem.batch * problem.kv_heads, 1),
        local_size=(1, 1, 1),
        args=parts.arguments(problem),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,))


def _text(problem: AttentionProblem, config: Config) -> str:
    return render(
        KERNELS[problem.direction],
        preamble=dtype_preamble(problem.dtype),
        rows=config.rows,
        vec=config.vec,
        ahead=config.ahead,
        line_items=parts.LINE_BYTES // DTYPES[problem.dtype],
        dim=problem.head_dim,
        dim_v=problem.value_dim,
        seen=parts.seen(problem),
        masked=problem.mask,
        aligned=problem.dtype == "fp16",  # PoCL 3.1 may end by SIGSEGV at other vectors of halves
        most=MOST_ROWS,
    )
