"""Tables of measurements, losers and failures included: JSON lines under gzip.

A line with `device` begins what was measured on one; a line per measurement follows.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from oclgen.limits import DeviceInfo, Limits


@dataclass(frozen=True)
class Head:
    """What the measurements below it were taken on: device, limits, and rates that it reached."""

    device: DeviceInfo
    limits: Limits
    gflops: float
    gbytes: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = asdict(self)
        values["limits"] = {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in values["limits"].items()
        }
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Head:
        """Return what `to_json` wrote."""
        kinds = {"extensions": frozenset, "instructions": frozenset}
        limits: dict[str, Any] = {
            name: kinds.get(name, tuple)(value) if isinstance(value, list) else value
            for name, value in values["limits"].items()
        }
        device = DeviceInfo(**values["device"])
        return cls(device, Limits(**limits), values["gflops"], values["gbytes"])


@dataclass(frozen=True)
class Row:
    """One measurement: milliseconds, infinite for a failure, of which `invalidity` is the kind."""

    problem: str
    family: str
    config: dict[str, int | bool | str]
    ms: float
    invalidity: str


def append(path: Path, head: Head, rows: Sequence[Row]) -> None:
    """Add measurements to a file, which need not exist.

    Args:
        path: the file.
        head: what they were measured on.
        rows: the measurements.
    """
    with gzip.open(path, "at", encoding="utf-8") as file:
        for line in (head.to_json(), *map(_to_json, rows)):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _to_json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "ms": None if row.ms == inf else round(row.ms, 6)}


def read(path: Path) -> Iterator[tuple[Head, Row]]:
    """Yield what `append` wrote."""
    head: Head | None = None
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            values = json.loads(line)
            if "device" in values:
                head = Head.from_json(values)
            else:
                assert head is not None
                ms = inf if values["ms"] is None else values["ms"]
                yield head, Row(**{**values, "ms": ms})
