"""Digests of generated kernels: a record's times belong to one, whichever version wrote it.

If a record's digest equals that of the plan that is generated today (`Plan.digest`), it was
measured on the same kernels. The generator's number only says where it came from. `CHANGED` is the
one place that decides about records without a digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oclgen.families import ConfigError
from oclgen.keys import parse_key
from oclgen.problem import Problem, ProblemError
from oclgen.variant import Variant
from tuned_db.records.record import Record, RecordError, json_object

if TYPE_CHECKING:
    from sqlalchemy import Row

UNDIGESTED = "3"
"""The last generator that wrote records without digests, in files and databases of before schema 3
and revision 0004. Of older generators' kernels nothing is known."""
CHANGED = frozenset(
    {
        "attention_lanes", "attention_mma", "attention_register", "conv_as_gemm_async",
        "conv_as_gemm_fragments", "conv_as_gemm_mma", "conv_async", "conv_gemm", "conv_mma",
        "conv_narrow_weights", "conv_pairs", "conv_register", "conv_register_weights", "depthwise",
        "depthwise_weights", "gemm_async", "gemm_fragments", "gemm_mma", "gemm_tma",
        "packed_gemm", "packed_lanes", "packed_mma", "packed_rows", "winograd_blocked",
        "winograd_fused", "winograd_staged", "winograd_weights",
    }
)  # fmt: skip
"""Families of which a text changed after generator 3 began, whenever that was.

What generator 3 measured of them without writing a digest may be of other kernels than today's: it
gets no digest, serves as `stale`, and is tried again. A family whose text changes joins the set:
`python -m tests.oclgen.plan_texts --against tests/oclgen/plan_texts.json` names it.
"""
CHANGED_KERNELS = frozenset({"packed_a", "packed_b", "sum_planes"})
"""Kernels that several families launch and whose text changed: plans without them are unchanged."""
NEWER_FUNCTIONS = (
    "store_own(", "store_halves(", "NEAREST_BF16(", "BF16_BITS(", "ASK_FOR(",
)  # fmt: skip
"""Functions of texts that generator 3 did not write: where they mark all that changed of a family,
it need not be in `CHANGED`. Blocks of columns of `gemm_register` at the edge have the first two,
families of pairs the third, every text that stores bf16 the next, and what is asked for ahead the
last."""


@lru_cache(maxsize=16384)
def digest_of(problem: Problem, variant: Variant) -> str | None:
    """Return the digest of what is generated today; None where nothing can be generated.

    To generate a plan's text takes some 10 ms, so digests are remembered.
    """
    try:
        return variant.plan(problem).digest()
    except Exception:  # a family may raise anything for a config that `why_not` refuses
        return None


def is_unchanged(generator: str, problem: Problem, variant: Variant) -> bool:
    """Say whether today's kernels are those that `generator` measured without writing a digest.

    Args:
        generator: number of the one that measured.
        problem: what was computed.
        variant: how; it may be invalid today.
    """
    if generator != UNDIGESTED or variant.family in CHANGED:
        return False
    try:
        launches = variant.plan(problem).launches
    except Exception:  # a family may raise anything for a config that `why_not` refuses
        return False
    if not CHANGED_KERNELS.isdisjoint(launch.kernel for launch in launches):
        return False
    return not any(name in launch.source for launch in launches for name in NEWER_FUNCTIONS)


def is_of_today(one: Record | Row[Any]) -> bool:
    """Say whether a record's kernels, or those of a row of `rows.measured`, are today's.

    They are not where no family reads its problem and config.
    """
    try:
        problem = parse_key(one.problem)
        variant = Variant.from_values(one.family, json_object(one.config))
    except (ProblemError, ConfigError, RecordError):
        return False
    if one.digest is None and is_unchanged(one.generator, problem, variant):
        return True
    return one.digest is not None and one.digest == digest_of(problem, variant)


def late_digest(generator: str, problem: str, family: str, config: str) -> str | None:
    """Return today's digest for a measurement that has none, if its kernels are unchanged.

    Args:
        generator: number of the generator that measured.
        problem: the record's key.
        family: the record's family.
        config: its config as JSON. Where no family reads these texts, None is returned.
    """
    try:
        known = parse_key(problem), Variant.from_values(family, json_object(config))
    except (ProblemError, ConfigError, RecordError):
        return None
    return digest_of(*known) if is_unchanged(generator, *known) else None


def with_digests(records: Iterable[Record]) -> list[Record]:
    """Return `records` with today's digest where one is missing and its kernels are unchanged.

    Files of before schema 3 have none.
    """
    return [
        replace(one, digest=late_digest(one.generator, one.problem, one.family, one.config))
        if one.digest is None
        else one
        for one in records
    ]
