"""Digests of generated kernels: what a record's times belong to, whichever version wrote it.

A record whose digest is the one of the plan that is generated today (`Plan.digest`) was measured on
the same kernels; its generator's number says only where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from oclgen import GENERATOR_VERSION
from oclgen.families import ConfigError
from oclgen.keys import parse_key
from oclgen.problem import Problem, ProblemError
from oclgen.variant import Variant
from tuned_db.record import Record, json_object


@lru_cache(maxsize=16384)
def digest_of(problem: Problem, variant: Variant) -> str | None:
    """Return the digest of what is generated today; None where nothing can be generated.

    To generate a plan's text takes some 10 ms, so digests are remembered.
    """
    try:
        return variant.plan(problem).digest()
    except Exception:  # a family may raise anything for a config that `why_not` refuses
        return None


def digest_of_texts(problem: str, family: str, config: str) -> str | None:
    """Return `digest_of` for the texts of a record; None where they are read by no family."""
    try:
        return digest_of(parse_key(problem), Variant.from_values(family, json_object(config)))
    except (ProblemError, ConfigError):
        return None


def with_digests(records: Iterable[Record]) -> list[Record]:
    """Return `records` with today's digest where the present generator wrote one without.

    Files of before schema 3 have none.
    """
    return [
        replace(one, digest=digest_of_texts(one.problem, one.family, one.config))
        if one.digest is None and one.generator == GENERATOR_VERSION
        else one
        for one in records
    ]
