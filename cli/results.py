"""The result of a tuning, as a table for people and as values for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from search_spaces.progress import TuneResult


def values_of(result: TuneResult) -> dict[str, Any]:
    """Return a result as plain values, for JSON."""
    best = result.best
    return {
        "problem": result.problem.key(),
        "status": result.status,
        "family": best.variant.family if best else None,
        "config": best.variant.values() if best else None,
        "ms": best.ms if best else None,
        "gflops": result.problem.flops / best.ms / 1e6 if best else None,
        "trials": dict(result.outcomes),
        "reason": result.reason,
        "notice": result.notice,
        "skipped": result.skipped,
    }


def table_of(results: Sequence[TuneResult], peaks: Mapping[str, float]) -> Table:
    """Return one row per problem; family and config stand below it, for narrow terminals.

    Args:
        results: the result of each problem.
        peaks: GFLOP/s of the device by dtype; of one that is not in it no part of a peak is shown.
    """
    table = Table("problem\nfamily: config", "ms", "GFLOP/s", "of peak", "trials", show_lines=True)
    for result in results:
        trials = ", ".join(f"{n} {_outcome(kind)}" for kind, n in sorted(result.outcomes.items()))
        trials = f"{result.status}\n{trials}" if trials else result.status
        key = result.problem.key()
        skipped = "".join(f"\n{one[:200]}" for one in result.said_of_skipped)
        if result.best is None:
            table.add_row(f"{key}\n{result.reason[:200]}{skipped}", "", "", "", trials)
            continue
        rate = result.problem.flops / result.best.ms / 1e6
        peak = peaks.get(result.problem.dtype)
        variant = result.best.variant
        config = " ".join(f"{name}={value}" for name, value in variant.values().items())
        table.add_row(
            f"{key}\n{variant.family}: {config}{skipped}",
            f"{result.best.ms:.4g}",
            f"{rate:.1f}",
            f"{rate / peak:.0%}" if peak else "",
            trials,
        )
    notices = dict.fromkeys(result.notice for result in results if result.notice)
    said = ("GFLOP/s count the direct algorithm: Winograd may pass the peak.", *notices)
    table.caption = "\n".join(said)
    return table


def _outcome(invalidity: str) -> str:
    return "timed" if invalidity == "none" else f"failed ({invalidity})"
