"""Attention on processors with a row in every lane of a vector, forward and backward.

Rows are turned once per work-item; keys and values, which `attention_register` turns for each of
its tiles, are read as they lie, and softmax needs no sums over the lanes of a vector.

All gradients at once take a work-item for each head of k and v, which adds the parts of grad_q that
its keys bring one after the other. Probabilities are then computed once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import gcd
from typing import Annotated, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Range, Tile, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import DTYPES, AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_lanes"
KERNELS = {
    "fwd": NAME,
    "bwd_q": "attention_lanes_grad_q",
    "bwd_kv": "attention_lanes_grad_kv",
    "bwd": "attention_lanes_grad",
}
ITEMS_PER_UNIT = 4
"""Work-items that a core wants before more rows of one share what it reads."""
WIDTHS = (4, 8, 16)
"""Lanes of a vector."""
FOLDS = (1, 2, 4)
"""Items of a row side by side in a vector."""
LONG_ROW = 64
"""Items of a row from which powers take little of the time."""
FEW_QUERIES = 96
"""Queries below which the last tile of a head would often be short."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the three kernels; the template's legend says what they are."""

    FREE = frozenset({"batch", "queries", "keys"})

    vec: Vector
    vectors: Annotated[int, Range(1, 4)]
    sums: Annotated[int, Range(1, 24)]
    tile: Tile
    blocks: Annotated[int, Range(1, 8)] = 1
    fold: Annotated[int, Range(1, 4)] = 1

    @property
    def wide(self) -> int:
        """Lanes of a vector of items, and of one that scores are summed in."""
        return self.vec * self.fold

    @property
    def height(self) -> int:
        """Rows of a block: a lane for each."""
        return self.vec * self.vectors

    @property
    def rows_at_once(self) -> tuple[int, int]:
        """Rows of results whose sums are in registers at once, and those of the last ones."""
        rows = gcd(self.vec, self.sums)
        return rows, max(1, rows // 2)

    @property
    def columns(self) -> int:
        """Vectors of items of each of these rows."""
        return min(4, self.sums * self.vectors // self.rows_at_once[0])

    def local_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of local memory that a kernel declares."""
        dim, dim_v = problem.head_dim, problem.value_dim
        own = dim + dim_v if problem.is_gradient else dim
        pitch = round_up(dim, self.wide)
        pitches = {name: round_up(size, self.wide) for name, size in _others(problem).items()}
        others = sum(pitches.values()) if copies(problem) else 0
        scores = self.height * (2 if problem.is_gradient else 1)
        as_they_lie = pitch if problem.direction == "bwd" else 0
        results = sum(round_up(size, self.wide) for size in _results(problem))
        blocks = self.blocks * self.height * (own + results + as_they_lie)
        return FLOAT_BYTES * (blocks + self.tile * (others + scores))

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec not in WIDTHS:
            return f"vec={self.vec} must be of {WIDTHS}"
        if self.tile % self.sums:
            return f"tile={self.tile} must be a multiple of sums={self.sums}"
        if self.fold == 1:
            return None
        if self.fold not in FOLDS or self.wide not in WIDTHS:
            return f"fold={self.fold} must be of {FOLDS}, and vec={self.vec} times it of {WIDTHS}"
        if problem.direction != "fwd" or problem.head_dim % self.fold:
            return f"fold={self.fold}: only for forward passes whose head_dim is a multiple of it"
        return None

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        kernel = KERNELS[problem.direction]
        frame = Frame(kernel, (1, 1, 1), self.local_bytes(problem))
        return Needs((frame,), _workspaces(problem, self))


DEFAULT = Config(vec=4, vectors=1, sums=2, tile=2)
"""Fits 16 KiB of local memory up to rows of 160 items."""
TRAITS = Traits(rank=498, for_cpus=True)


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return parts.has_short_rows(problem)


def copies(problem: AttentionProblem) -> bool:
    """Say whether tiles of other rows are copied to local memory, as fp32.

    Rows of fp32 are read as they lie: a processor is asked for them early enough. Items of 16 bits
    would be converted for each block, and rows of several heads do not lie in a line.
    """
    return problem.dtype != "fp32" or joins(problem)


def joins(problem: AttentionProblem) -> bool:
    """Say whether a tile goes on from the queries of one head to the next that shares k and v."""
    are_few = problem.queries < FEW_QUERIES or "queries" in problem.free
    counts_all = _sees_all(problem) and not problem.dropout
    return _by_keys(problem) and counts_all and problem.shared_by > 1 and are_few


def rows_of(problem: AttentionProblem) -> int:
    """Return the rows that are turned, of those that share a head of k and v."""
    return problem.keys if _by_keys(problem) else problem.queries * problem.shared_by


def _by_keys(problem: AttentionProblem) -> bool:
    return problem.direction in ("bwd_kv", "bwd")


def _sees_all(problem: AttentionProblem) -> bool:
    """Say whether scores are what the products are, for each query and key."""
    return not (problem.mask or parts.seen(problem).is_limited)


def guesses(problem: AttentionProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind != "cpu":
        return []
    vec = max(4, min(16, limits.native_float_width))
    # vectors of sums that registers hold, beside what is multiplied
    most = 24 if limits.has_32_vectors else 12
    one = _side_by_side(problem, vec, most)
    if one is None and rows_of(problem) <= vec:
        one = Config(vec, vectors=1, sums=12, tile=48)
    one = one or Config(vec, vectors=3, sums=most // 3, tile=64)
    # blocks that share a tile bring it to a cache once; rows of a mask see different ones,
    # and five products for a row that is not copied take longer than to read it again
    alone = parts.seen(problem).is_limited or (problem.direction == "bwd" and not copies(problem))
    blocks = (1,) if alone else (4, 2, 1)
    heads = problem.batch * problem.kv_heads
    shares = [
        replace(one, blocks=n)
        for n in blocks
        if n == 1
        or problem.direction == "bwd"  # whose rows are not shared out
        or heads * _work_items(problem, n * one.height) >= ITEMS_PER_UNIT * limits.compute_units
    ]
    short = replace(one, tile=one.sums)  # for long rows and little local memory
    least = replace(short, vec=4, vectors=1, fold=1)
    return [*shares, short, least]


def _side_by_side(problem: AttentionProblem, lanes: int, most: int) -> Config | None:
    """Return the guess for few rows, whose items then fill vectors, or None where there is none.

    Powers are then taken of narrow vectors. Long rows of fp32 make up for it with up to three of
    them, others with one.
    """
    rows, vec = rows_of(problem), min(WIDTHS)
    is_long = problem.dtype == "fp32" and problem.head_dim >= LONG_ROW
    if rows > (3 * vec if is_long else vec):
        vec = min((width for width in WIDTHS if rows <= width <= lanes), default=lanes)
    fold = lanes // vec
    if problem.direction != "fwd" or fold == 1 or problem.head_dim % fold:
        return None
    vectors = ceil_div(rows, vec)
    return Config(vec, vectors, sums=min(8, most // vectors), tile=96, fold=fold)


def _work_items(problem: AttentionProblem, rows: int) -> int:
    """Return the work-items of a head of k and v, each of which has `rows` rows."""
    return 1 if problem.direction == "bwd" else ceil_div(rows_of(problem), rows)


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the one launch that computes the problem."""
    own = _work_items(problem, config.height * config.blocks)
    is_whole = problem.direction == "bwd"
    launch = Launch(
        text=LazyText(lambda: _text(problem, config)),
        kernel=KERNELS[problem.direction],
        global_size=(own, problem.batch * problem.kv_heads, 1),
        local_size=(1, 1, 1),
        args=(*parts.arguments(problem), *(buffer("sums") if is_whole else ())),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,), _workspaces(problem, config))


def _workspaces(problem: AttentionProblem, config: Config) -> tuple[tuple[str, int], ...]:
    """Return the sums of grad_q in fp32: whole vectors, and rows that a last tile may lack."""
    if problem.direction != "bwd":
        return ()
    rows = problem.batch * problem.heads * (problem.queries + config.sums)
    return (("sums", FLOAT_BYTES * rows * round_up(problem.head_dim, config.wide)),)


def _text(problem: AttentionProblem, config: Config) -> str:
    is_plain = not problem.is_gradient and _sees_all(problem)
    shared = asdict(config) | {
        "wide": config.wide,
        "rows_at_once": config.rows_at_once,
        "dim": problem.head_dim,
        "dim_v": problem.value_dim,
        "direction": problem.direction,
        "masked": problem.mask,
        "is_plain": is_plain,
        "place": "local" if copies(problem) else "global",
    }
    tiles = render(
        "attention_lanes_tiles",
        preamble=dtype_preamble(problem.dtype),
        parts_of={size: _parts(size, config.wide, config.columns) for size in _results(problem)},
        line_items=parts.LINE_BYTES // DTYPES[problem.dtype],
        load_part=parts.load_part(config.wide),
        items=parts.items_of_row,
        power=parts.power_of_two(config.vec),
        **parts.dropout(problem, config.vec, f"ulong{config.vec}"),
        **shared,
    )
    return render(
        NAME,
        tiles=tiles,
        kernel=KERNELS[problem.direction],
        pitch_of={dim: round_up(dim, config.wide) for dim in (problem.head_dim, problem.value_dim)},
        seen=parts.seen(problem),
        joined=joins(problem),
        philox=problem.dropout,
        **shared,
    )


def _parts(size: int, wide: int, most: int) -> list[tuple[int, int, int]]:
    """Return the parts of a row of `size` items: up to `most` vectors, as even as can be.

    Each is the first and the number of its vectors, and the items that its last one has of `wide`.
    """
    count = ceil_div(size, wide)
    shares = ceil_div(count, most)
    ends = [share * count // shares for share in range(shares + 1)]
    return [
        (first, end - first, min(wide, size - (end - 1) * wide)) for first, end in pairwise(ends)
    ]


def _others(problem: AttentionProblem) -> dict[str, int]:
    """Return the rows that own ones are multiplied with, and the items of each."""
    names = ("q", "grad") if _by_keys(problem) else ("k", "v")
    return dict(zip(names, (problem.head_dim, problem.value_dim), strict=True))


def _results(problem: AttentionProblem) -> tuple[int, ...]:
    """Return the items of a row of each result."""
    return {
        "fwd": (problem.value_dim,),
        "bwd_q": (problem.head_dim,),
        "bwd_kv": (problem.head_dim, problem.value_dim),
        "bwd": (problem.head_dim, problem.value_dim),
    }[problem.direction]
