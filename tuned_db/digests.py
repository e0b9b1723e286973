"""Digests of generated kernels: what a record's times belong to, whoever generated the text when.

A record whose digest is the one of the plan that is generated today was measured on the same
kernels; its generator's number says only where it came from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from oclgen import GENERATOR_VERSION
from oclgen.families import FAMILIES, ConfigError, config_from_dict
from oclgen.keys import parse_key
from oclgen.plan import Plan
from oclgen.problem import Problem, ProblemError
from tuned_db.record import Record, json_object


def plan_digest(plan: Plan) -> str:
    """Return 16 hex digits of SHA-256 over all that a device is given of `plan`.

    They cover every launch's source, kernel, sizes, arguments and local bytes, the workspaces and
    the number of counters.
    """
    launches = [
        [
            one.source,
            one.kernel,
            one.global_size,
            one.local_size,
            [[type(arg).__name__, *arg] for arg in one.args],
            one.local_bytes,
        ]
        for one in plan.launches
    ]
    content = json.dumps([launches, plan.workspaces, plan.counters])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def digest_of(problem: Problem, family: str, config: Any) -> str | None:
    """Return the digest of what is generated today; None where nothing can be generated.

    The config must be one that the family takes for the problem; see `tuned_db.serving`.
    """
    try:
        return plan_digest(FAMILIES[family].plan(problem, config))
    except Exception:  # a family may raise anything for a config that it was not asked about
        return None


def digest_of_texts(problem: str, family: str, config: str) -> str | None:
    """Return `digest_of` for the texts of a record; None where they are read by no family."""
    try:
        parsed = parse_key(problem)
        return digest_of(parsed, family, config_from_dict(family, json_object(config)))
    except (ProblemError, ConfigError):
        return None


def with_digests(records: Iterable[Record]) -> list[Record]:
    """Return `records` with today's digest where the present generator wrote one without.

    Files of before schema 3 have none. Each plan takes some 10 ms to generate.
    """
    return [
        replace(one, digest=digest_of_texts(one.problem, one.family, one.config))
        if one.digest is None and one.generator == GENERATOR_VERSION
        else one
        for one in records
    ]
