"""Attention in 16 bits on processors with AMX, whose tile registers hold 16 rows of 64 bytes.

Scores are computed turned, a row of a tile for each key and a column for each query: so softmax has
a query in every lane, and words of two neighbouring keys are, as they lie, the pairs that the
product with the values reads. Gradients are those of `attention_amx_grad`. Few queries are left to
`attention_rows`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.families.gemm import gemm_amx
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS, SIDE, STEP
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Range
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div, round_up
from oclgen.problem import DTYPES, AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_amx"
PACK = "attention_amx_pack"

LEAST_ROWS = 4
"""Rows of a head of k and v from which on tiles are guessed; fewer are left to `attention_rows`."""
MOST_UNPACKED = 64
"""Rows up to which each work-item turns values itself: a launch that packs takes longer."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch", "queries", "keys"})

    vectors: Annotated[int, Range(1, 2)]
    chunk: Annotated[int, Range(STEP, 1024)]
    pack: bool

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.chunk % STEP:
            return f"chunk={self.chunk} is no multiple of {STEP}, the keys of a tile of values"
        return limits.why_no(PRODUCTS[problem.dtype])

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), _workspaces(problem, self))


DEFAULT = Config(vectors=1, chunk=256, pack=True)
TRAITS = Traits(rank=493, instructions=frozenset(PRODUCTS.values()), rate=lambda _limits: 16)


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return parts.has_short_rows(problem) and problem.direction == "fwd" and is_tiled(problem)


def is_tiled(problem: AttentionProblem) -> bool:
    """Say whether tiles multiply the problem's dtype."""
    return problem.dtype in PRODUCTS


def has_tiles(problem: AttentionProblem, limits: Limits) -> bool:
    """Say whether the device has tiles that multiply the problem's dtype."""
    return PRODUCTS[problem.dtype] in limits.instructions


def rows_of(problem: AttentionProblem) -> int:
    """Return the rows that share a head of k and v."""
    return problem.queries * problem.shared_by


def guesses(problem: AttentionProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if not has_tiles(problem, limits) or rows_of(problem) < LEAST_ROWS:
        return []
    rows = rows_of(problem)
    first = Config(1 if rows <= SIDE else 2, 512, pack=rows > MOST_UNPACKED)
    return [first, replace(first, pack=not first.pack)]


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the launch that packs keys and values, and the one that multiplies them."""
    packed = (*buffer("packed_k"), *buffer("packed_v")) if config.pack else ()
    lines = problem.batch * problem.kv_heads
    pack = Launch(
        text=LazyText(lambda: _pack_text(problem)),
        kernel=PACK,
        global_size=(ceil_div(problem.keys, STEP), lines, 1),
        local_size=(1, 1, 1),
        args=(
            *buffer("k"), *parts.strides_of(problem, "k"),
            *buffer("v"), *parts.strides_of(problem, "v"),
            *packed, Scalar(problem.kv_heads), Scalar(problem.keys),
        ),
    )  # fmt: skip
    product = Launch(
        text=LazyText(lambda: _text(problem, config)),
        kernel=NAME,
        global_size=(ceil_div(rows_of(problem), SIDE * config.vectors), lines, 1),
        local_size=(1, 1, 1),
        args=(*parts.arguments(problem), *packed),
    )
    return Plan((pack, product) if config.pack else (product,), _workspaces(problem, config))


def _workspaces(problem: AttentionProblem, config: Config) -> tuple[tuple[str, int], ...]:
    """Return keys and values in whole tiles, by groups of 32 keys."""
    if not config.pack:
        return ()
    keys = problem.batch * problem.kv_heads * round_up(problem.keys, STEP)
    steps, tiles = _tiles(problem)
    size = DTYPES[problem.dtype]
    return (("packed_k", size * keys * STEP * steps), ("packed_v", size * keys * SIDE * tiles))


def _tiles(problem: AttentionProblem) -> tuple[int, int]:
    """Return the steps of 32 items of a row of q and k, and the tiles of 16 of one of v."""
    return ceil_div(problem.head_dim, STEP), ceil_div(problem.value_dim, SIDE)


def _shared(problem: AttentionProblem, space: str) -> dict[str, Any]:
    steps, tiles = _tiles(problem)
    return {
        "turn": turn(space, "__global"),
        "dim": problem.head_dim, "dim_v": problem.value_dim, "steps": steps, "tiles_v": tiles,
    }  # fmt: skip


def turn(space: str, source: str) -> str:
    """Return the text that turns the values of 32 keys, and of `transpose`.

    Args:
        space: address space of the turned ones.
        source: that of the values.
    """
    transpose = transpose_text(SIDE)
    return render("attention_amx_turn", transpose=transpose, space=space, source=source)


def scores(problem: AttentionProblem) -> str:
    """Return the text that limits scores to keys that are seen, and makes words of two."""
    return render(
        "attention_amx_scores",
        seen=parts.seen(problem),
        masked=problem.mask,
        half=problem.dtype == "fp16",
    )


def _pack_text(problem: AttentionProblem) -> str:
    return render(PACK, **_shared(problem, "__global"))


def _text(problem: AttentionProblem, config: Config) -> str:
    return render(
        NAME,
        preamble=dtype_preamble(problem.dtype),
        registers=gemm_amx.tiles(problem.dtype),
        scores=scores(problem),
        power=parts.power_of_two(SIDE),
        seen=parts.seen(problem),
        masked=problem.mask,
        **parts.dropout(problem, SIDE, f"ulong{SIDE}"),
        **_shared(problem, "__private"),
        **asdict(config),
    )
