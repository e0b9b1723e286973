"""Gradients of attention in 16 bits on processors with AMX: `attention_amx`'s scores, backward.

All gradients at once take a work-item for each head of k and v and five products for each pair of
blocks. Where work-items share out rows instead, the gradient of q takes three, and those of k and v
four. Few queries are left to `attention_rows`, whose work-items fill no tiles with zeros.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, TypeGuard

from oclgen.families.attention import attention_amx, attention_rows
from oclgen.families.attention import attention_parts as parts
from oclgen.families.gemm import gemm_amx
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS, SIDE, STEP
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Range
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div
from oclgen.problem import AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_amx_grad"

LEAST_QUERIES = 8
"""Queries from which on tiles are guessed, where `attention_rows` serves, too: with 4 queries it
takes 0.7 of their time, with 8 queries 1.2."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch", "queries", "keys"})

    chunk: Annotated[int, Range(STEP, 512)]
    block: Annotated[int, Range(STEP, 512)]

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.chunk % STEP or self.block % STEP:
            return (
                f"chunk={self.chunk} block={self.block} are no multiples of {STEP}, the queries "
                "and keys of a step"
            )
        return limits.why_no(PRODUCTS[problem.dtype])

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), _workspaces(problem))


DEFAULT = Config(chunk=64, block=64)
TRAITS = Traits(rank=492, instructions=frozenset(PRODUCTS.values()), rate=lambda _limits: 16)


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return parts.has_short_rows(problem) and problem.is_gradient and attention_amx.is_tiled(problem)


def guesses(problem: AttentionProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if not attention_amx.has_tiles(problem, limits):
        return []
    if problem.queries < LEAST_QUERIES and attention_rows.serves(problem):
        return []
    first = Config(chunk=256, block=256)
    return [first, replace(first, chunk=128), replace(first, chunk=128, block=128)]


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the one launch that computes the problem."""
    spaces = _workspaces(problem)
    shares = {
        "bwd_q": problem.shared_by * ceil_div(problem.queries, config.chunk),
        "bwd_kv": ceil_div(problem.keys, config.block),
    }
    launch = Launch(
        text=LazyText(lambda: _text(problem, config)),
        kernel=NAME,
        global_size=(shares.get(problem.direction, 1), problem.batch * problem.kv_heads, 1),
        local_size=(1, 1, 1),
        args=(*parts.arguments(problem), *(arg for role, _ in spaces for arg in buffer(role))),
    )
    return Plan((launch,), spaces)


def _workspaces(problem: AttentionProblem) -> tuple[tuple[str, int], ...]:
    """Return the sums of grad_k and grad_v in fp32, as whole tiles of whole steps of keys."""
    if problem.direction == "bwd_q":
        return ()
    keys = problem.batch * problem.kv_heads * ceil_div(problem.keys, STEP) * STEP
    sizes = {"sum_k": problem.head_dim, "sum_v": problem.value_dim}
    return tuple(
        (role, FLOAT_BYTES * keys * ceil_div(size, SIDE) * SIDE) for role, size in sizes.items()
    )


def _text(problem: AttentionProblem, config: Config) -> str:
    dim, dim_v = problem.head_dim, problem.value_dim
    return render(
        NAME,
        preamble=dtype_preamble(problem.dtype),
        registers=gemm_amx.tiles(problem.dtype),
        turn=attention_amx.turn("__private", "__private"),
        scores=attention_amx.scores(problem),
        power=parts.power_of_two(SIDE),
        seen=parts.seen(problem),
        masked=problem.mask,
        direction=problem.direction,
        dim=dim,
        dim_v=dim_v,
        steps=ceil_div(dim, STEP),
        steps_v=ceil_div(dim_v, STEP),
        tiles=ceil_div(dim, SIDE),
        tiles_v=ceil_div(dim_v, SIDE),
        **parts.dropout(problem, SIDE, f"ulong{SIDE}"),
        **asdict(config),
    )
