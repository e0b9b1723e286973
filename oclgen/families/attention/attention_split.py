"""Attention of few queries on GPUs, as in decoding: work-groups share the keys (flash-decoding).

What they found is joined by a second launch or, where work-groups can count each other, by the last
of them. It reads keys and values at the rate of memory and multiplies in fp32. With many queries,
memory does not bound the time, and other families are faster. It has no gradients and no dropout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Local, Range
from oclgen.plan import (
    COUNTERS,
    Arg,
    Frame,
    Launch,
    LazyText,
    Needs,
    Plan,
    Scalar,
    buffer,
    ceil_div,
)
from oclgen.problem import DTYPES, AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_split"
JOIN = "attention_split_join"
CHUNK_BYTES = 16
"""What a work-item reads at once."""
JOINING = 64
"""Work-items that join a row."""
MOST_ROWS = 16
"""Rows of a head of k and v beyond which these are read more than once; other families serve."""
FEW_QUERIES, MOST_ITEMS = 4, 128
"""With more queries than these, and more items of all their rows per compute unit, matrix units
take less time: they multiply 64 rows of a head as fast as one. Measured on an H200."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch", "queries", "keys"})

    work_items: Local
    slice: Annotated[int, Range(4, 1024)]
    rows: Annotated[int, Range(1, 16)]
    counted: bool = False

    def lanes(self, problem: AttentionProblem) -> tuple[int, int]:
        """Return how many work-items read a key together, and how many a value."""
        chunk = CHUNK_BYTES // DTYPES[problem.dtype]
        return problem.head_dim // chunk, problem.value_dim // chunk

    def local_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of local memory: sums of products, scores and their powers, a count."""
        lanes, _ = self.lanes(problem)
        chunk = CHUNK_BYTES // DTYPES[problem.dtype]
        sums = max(self.slice * (lanes + 1), self.work_items * chunk)
        return FLOAT_BYTES * (self.rows * (sums + 2 * self.slice) + self.counted)

    def slices(self, problem: AttentionProblem) -> int:
        """Return the slices of the keys."""
        return ceil_div(problem.keys, self.slice)

    def is_alone(self, problem: AttentionProblem) -> bool:
        """Say whether there is one slice, however many keys a call has."""
        return self.slices(problem) == 1 and "keys" not in problem.free

    def with_best_split(self, problem: AttentionProblem, limits: Limits) -> Config:
        """Return this config with slices and rows that `problem` wants, joined by one launch."""
        rows, slices = _split(problem, limits)
        wanted = (
            replace(self, slice=size, rows=rows, counted=counted)
            for size in slices
            for counted in (True, False)
        )
        return next((one for one in wanted if one.why_not(problem, limits) is None), self)

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        size = DTYPES[problem.dtype]
        if problem.head_dim * size % CHUNK_BYTES or problem.value_dim * size % CHUNK_BYTES:
            return (
                f"rows of {problem.head_dim} and {problem.value_dim} elements of {size} B are no "
                f"whole chunks of {CHUNK_BYTES} B"
            )
        if problem.dropout:
            return "it drops no probabilities; attention_register does"
        if self.slice % 4:
            return f"slice={self.slice} is no multiple of 4"
        if self.counted and self.is_alone(problem):
            return f"slice={self.slice} has all {problem.keys} keys: counted=True joins nothing"
        if self.counted and (reason := limits.why_no("cp_async")):
            return reason
        if max(self.lanes(problem)) > self.work_items:
            return f"{max(self.lanes(problem))} work-items read a row; there are {self.work_items}"
        return None

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.work_items, 1, 1), self.local_bytes(problem))
        return Needs((frame,), _workspaces(problem, self))


DEFAULT = Config(work_items=64, slice=16, rows=1)
TRAITS = Traits(rank=505)


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        parts.serves(problem)
        and not problem.is_gradient
        and problem.dtype != "tf32"
        and problem.queries * problem.shared_by <= MOST_ROWS
    )


def guesses(problem: AttentionProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu" or _are_units_faster(problem, limits):
        return []
    rows, slices = _split(problem, limits)
    found = [
        *(Config(256, size, rows) for size in slices),
        *(Config(128, size, rows) for size in (32, 16)),
    ]
    return [replace(one, counted=True) for one in found] + found


def _split(problem: AttentionProblem, limits: Limits) -> tuple[int, list[int]]:
    """Return rows of a work-group, and how many keys a slice may have, the best number first."""
    all_rows = problem.queries * problem.shared_by
    rows = next(rows for rows in (1, 2, 4, 8) if rows >= all_rows or rows == 8)
    groups = problem.batch * problem.kv_heads * ceil_div(all_rows, rows)
    # twice as many work-groups as units, and slices of 128 keys at the most
    wanted = problem.keys * groups // (2 * limits.compute_units)
    return rows, [size for size in (128, 64, 32) if size <= max(wanted, 32)]


def _are_units_faster(problem: AttentionProblem, limits: Limits) -> bool:
    items = problem.batch * problem.heads * problem.queries * problem.head_dim
    return (
        "mma" in limits.instructions
        and problem.dtype in ("fp16", "bf16")
        and problem.queries > FEW_QUERIES
        and items > MOST_ITEMS * limits.compute_units
    )


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the launch over slices and, if nothing else joins them, the one that does."""
    alone = config.is_alone(problem)
    work: tuple[Arg, ...] = () if alone else (*buffer("parts"), *buffer("ends"))
    if config.counted:
        work = (*work, *buffer(COUNTERS))
    all_rows = problem.queries * problem.shared_by
    blocks, lines = ceil_div(all_rows, config.rows), problem.batch * problem.kv_heads
    sliced = Launch(
        text=LazyText(lambda: _text(problem, config, alone)),
        kernel=NAME,
        global_size=(config.slices(problem) * config.work_items, blocks, lines),
        local_size=(config.work_items, 1, 1),
        args=(*parts.arguments(problem), *work),
        local_bytes=config.local_bytes(problem),
    )
    launches = (sliced,) if alone or config.counted else (sliced, _join(problem, config))
    return Plan(launches, _workspaces(problem, config), config.counted * blocks * lines)


def _workspaces(problem: AttentionProblem, config: Config) -> tuple[tuple[str, int], ...]:
    if config.is_alone(problem):
        return ()
    count = problem.batch * problem.heads * problem.queries * config.slices(problem)
    return (("parts", FLOAT_BYTES * count * problem.value_dim), ("ends", FLOAT_BYTES * count))


def _join(problem: AttentionProblem, config: Config) -> Launch:
    text = LazyText(
        lambda: render(
            JOIN, preamble=dtype_preamble(problem.dtype), dim_v=problem.value_dim,
            work_items=JOINING,
        )
    )  # fmt: skip
    lines = problem.batch * problem.heads * problem.queries
    strides = parts.strides_of(problem, "out")
    sizes = (problem.heads, problem.queries, config.slices(problem))
    return Launch(
        text=text,
        kernel=JOIN,
        global_size=(lines * JOINING, 1, 1),
        local_size=(JOINING, 1, 1),
        args=(
            *buffer("parts"), *buffer("ends"), *buffer("out"), *strides, *buffer("lse"),
            *map(Scalar, sizes),
        ),
    )  # fmt: skip


def _text(problem: AttentionProblem, config: Config, alone: bool) -> str:
    lanes, lanes_v = config.lanes(problem)
    return render(
        NAME,
        preamble=dtype_preamble(problem.dtype),
        dtype=problem.dtype,
        work_items=config.work_items,
        slice=config.slice,
        rows=config.rows,
        lanes=lanes,
        lanes_v=lanes_v,
        chunk=CHUNK_BYTES // DTYPES[problem.dtype],
        seen=parts.seen(problem),
        masked=problem.mask,
        alone=alone,
        counted=config.counted,
    )
