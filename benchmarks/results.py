"""What a benchmark measured, as JSON to commit and as a Markdown table; it measures nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oclgen.limits import DeviceInfo


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, by its key: medians in ms of our variant and of the peer, rates in GFLOP/s.

    `of_peak` is the fraction of the measured fp32 rate; None for dtypes that another unit computes.
    """

    problem: str
    family: str
    config: str
    ours_ms: float
    peer_ms: float
    gflops: float
    peer_gflops: float
    of_peak: float | None

    @property
    def ratio(self) -> float:
        """How many times faster than the peer ours is."""
        return self.peer_ms / self.ours_ms


@dataclass(frozen=True, slots=True)
class Result:
    """All rows of a run and what they were measured on."""

    device: DeviceInfo
    peer: str
    peak_gflops: float
    rows: tuple[Row, ...]

    def save(self, path: Path) -> None:
        """Write it as JSON, one row per line, so that two runs can be compared as text."""
        head = {**asdict(self), "rows": None}
        lines = ",\n".join(json.dumps({**asdict(row), "ratio": row.ratio}) for row in self.rows)
        text = json.dumps(head, sort_keys=True).replace('"rows": null', f'"rows": [\n{lines}\n]')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def load(path: Path) -> Result:
    """Return what `Result.save` wrote."""
    values: dict[str, Any] = json.loads(path.read_text())
    rows = [{k: v for k, v in row.items() if k != "ratio"} for row in values.pop("rows")]
    device = DeviceInfo(**values.pop("device"))
    return Result(device=device, rows=tuple(Row(**row) for row in rows), **values)


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of the rows."""
    lines = [
        "| problem | variant | ours, GFLOP/s | of fp32 peak | peer, GFLOP/s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        peak = "" if row.of_peak is None else f"{row.of_peak:.0%}"
        lines.append(
            f"| {row.problem} | `{row.family}` | {row.gflops:.0f} | {peak} "
            f"| {row.peer_gflops:.0f} | {row.ratio:.2f} |"
        )
    return "\n".join(lines)
