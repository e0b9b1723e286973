"""Devices, problems and records for the tests of the database; no OpenCL is needed for any."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from oclgen import GENERATOR_VERSION
from oclgen.families import ConfigError
from oclgen.families.gemm import gemm_register
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem, Problem, ProblemError
from oclgen.variant import Variant
from tuned_db import Record
from tuned_db.records.digests import digest_of

INFO = DeviceInfo(
    name="Imaginary GPU",
    vendor="Imagination Works",
    kind="gpu",
    architecture="imaginary 1",
    runtime="Imaginary OpenCL",
    runtime_version="OpenCL 3.0",
    driver_version="1.2.3",
    compute_units=8,
)
LIMITS = Limits(kind="gpu", local_bytes=48 * 1024, max_work_group=256, max_work_items=(256,) * 3)
SQUARE = GemmProblem(64, 64, 64)
FAMILY = gemm_register.NAME


def config(**changes: Any) -> Any:
    """A valid config, told apart by its changes."""
    return replace(gemm_register.DEFAULT, **changes)


def variant(**changes: Any) -> Variant:
    """A variant of `FAMILY` with `config(**changes)`."""
    return Variant(FAMILY, config(**changes))


def timed(*samples: float) -> Measurement:
    """A measurement that went well."""
    return Measurement(samples=samples, error=1e-7)


def record(problem: Problem | str = SQUARE, **changes: Any) -> Record:
    """A valid record with these changes."""
    values: dict[str, Any] = {
        "problem": problem if isinstance(problem, str) else problem.key(),
        "family": FAMILY,
        "config": variant().to_json(),
        "samples": (1.0, 1.25, 1.5),
        "error": 2e-7,
        "trials": 20,
        "device": INFO,
        "generator": GENERATOR_VERSION,
        "created": "2026-01-02T03:04:05Z",
        "version": "0.1.0",
    } | changes
    if values["generator"] == GENERATOR_VERSION:
        values = {"digest": digest(*(values[name] for name in TEXTS))} | values
    return Record(**values)


TEXTS = ("problem", "family", "config")


@cache
def digest(problem: str, family: str, config: str) -> str | None:
    """The digest of today's kernels, None where no family reads the texts."""
    try:
        return digest_of(parse_key(problem), Variant.from_values(family, json.loads(config)))
    except (ProblemError, ConfigError):
        return None
