"""Refuses claims with times that no device of their kind could reach."""

from __future__ import annotations

from oclgen.families import is_transforming
from oclgen.problem import Problem
from tuned_db.records.record import Record

NOISE = 3.0
"""A peak that was measured while others ran can be half of what the device reaches, or less."""
MATRIX_UNITS = 16.0
"""Matrix units of narrow dtypes reach about this many times the fp32 rate of the same device."""
TRANSFORMS = 6.0
"""Winograd saves at most about this part of the multiplications, by which rates are counted."""


def why_implausible(record: Record, problem: Problem) -> str | None:
    """Return why a claim is not believed, None where it may be true or was measured here.

    `record.peak` must be what is known of the device here. Without it everything is believed.
    """
    if record.verified or record.peak is None:
        return None
    allowed = NOISE * record.peak[0]
    if problem.dtype != "fp32":
        allowed *= MATRIX_UNITS
    if is_transforming(record.family):
        allowed *= TRANSFORMS
    claimed = problem.flops / record.ms * 1e-6
    if claimed <= allowed:
        return None
    return (
        f"{record.family} claims {claimed:.4g} GFLOP/s in {record.ms:.4g} ms ({record.origin}); "
        f"the device's peak is {record.peak[0]:.4g}, and {allowed:.4g} at most are believed"
    )
