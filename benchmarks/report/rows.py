"""The results of a benchmark run, as rows in a JSON file; a later run goes on with it.

It measures nothing and prints nothing; `text.py` and `plot.py` read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from math import exp, log
from pathlib import Path
from typing import Any

from oclgen.limits import DeviceInfo
from oclgen.roofline import Roof, Roofs

LEFT_OUT = "left out"
"""How the reason of a row begins that a run had no time for."""
WRONG = "wrong"
"""How the reason of a row begins whose sides computed different results; it has no times."""


class ResultError(ValueError):
    """A file of rows that were measured on something else."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing measured: medians in ms of ours and, by name, of the peers, all in one run.

    `flops` are the direct algorithm's, `bytes` what must be moved at least. `error` is the relative
    L2 error against float64, None where it was not computed. `reason` says what failed; without
    times of ours the row is no more than that. `seed` drew the shape, None for a chosen one.
    `tuned` are two numbers: of how many problems there was a record of exactly that problem, and
    how many there are; None where nothing is tuned. A network has as many problems as layers.
    `difference` is the largest one between both sides' results, over the largest result, None where
    it was not computed; `fallbacks` are the calls of ours that ran on the CPU, None where they were
    not counted; `tokens` are those that a step reads or makes, 0 without any.
    """

    kind: str
    key: str
    groups: tuple[str, ...]
    dtype: str = "fp32"
    flops: float = 0.0
    bytes: float = 0.0
    ours_ms: float | None = None
    peers: dict[str, float] = field(default_factory=dict)
    variant: str = ""
    config: str = ""
    error: float | None = None
    reason: str = ""
    seed: int | None = None
    tuned: tuple[int, int] | None = None
    difference: float | None = None
    fallbacks: int | None = None
    tokens: int = 0

    @property
    def is_wrong(self) -> bool:
        """Whether the sides computed different results."""
        return self.reason.startswith(WRONG)

    @property
    def name(self) -> tuple[str, str]:
        """The fields that identify the row in a run."""
        return self.kind, self.key

    def ratio(self, peer: str) -> float | None:
        """Return how many times faster than `peer` ours is, None without both times."""
        if self.ours_ms is None or peer not in self.peers:
            return None
        return self.peers[peer] / self.ours_ms

    def gflops(self, ms: float | None) -> float | None:
        """Return the rate in GFLOP/s that a time means, None without a time or operations."""
        return self.flops / ms * 1e-6 if ms and self.flops else None

    @property
    def is_tuned(self) -> bool:
        """Whether every problem of the row has a record of its own."""
        return self.tuned is not None and self.tuned[0] == self.tuned[1]

    def of_roof(self, roofs: Roofs) -> float | None:
        """Return the part of its roof that ours reaches, None without a time."""
        return self.under(roofs).ms / self.ours_ms if self.ours_ms else None

    def under(self, roofs: Roofs) -> Roof:
        """Return the roof over the row."""
        return roofs.over(self.flops, self.bytes, self.dtype)

    def as_json(self, roofs: Roofs) -> dict[str, Any]:
        """Return the row and what follows from it (rates, ratios), which `from_json` ignores."""
        times = {"ours": self.ours_ms, **self.peers}
        derived: dict[str, Any] = {
            "gflops": {name: self.gflops(ms) for name, ms in times.items()},
            "ratios": {name: self.ratio(name) for name in self.peers},
            "roof": self.under(roofs).name,
            "of_roof": self.of_roof(roofs),
        }
        if self.tokens:
            rates = {name: self.tokens / ms * 1e3 for name, ms in times.items() if ms}
            derived["tokens_per_s"] = rates
        return {**asdict(self), **derived}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Row:
        """Return the row that `as_json` wrote."""
        kept = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        kept |= {name: tuple(kept[name]) for name in ("groups", "tuned") if kept.get(name)}
        return cls(**kept)


@dataclass(frozen=True, slots=True)
class Result:
    """Rows by name, and what they were measured on and with.

    `peers` gives each peer's full name and version, `versions` those of our side.
    """

    device: DeviceInfo
    versions: dict[str, str]
    peers: dict[str, str]
    roofs: Roofs
    note: str = ""
    rows: tuple[Row, ...] = ()

    def has(self, kind: str, key: str) -> bool:
        """Say whether there is a row of this name with times of both sides."""
        return any(row.name == (kind, key) and row.ours_ms and row.peers for row in self.rows)

    def with_row(self, row: Row) -> Result:
        """Return the result with `row` in the place of the one of its name.

        A row that was left out for lack of time replaces nothing.
        """
        known = {one.name: one for one in self.rows}
        if row.name in known and row.reason.startswith(LEFT_OUT):
            return self
        return replace(self, rows=tuple({**known, row.name: row}.values()))

    def save(self, path: Path) -> None:
        """Write JSON with one row per line, at once or not at all."""
        head = {**asdict(replace(self, rows=())), "rows": None}
        lines = ",\n".join(json.dumps(row.as_json(self.roofs)) for row in self.rows)
        text = json.dumps(head, indent=1).replace('"rows": null', f'"rows": [\n{lines}\n]')
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(text + "\n")
        unfinished.replace(path)

    def resumed(self, path: Path) -> Result:
        """Return this new result with the rows that `path` has, if they were made with the same.

        Rows of other versions of either side are dropped: the head could not speak for them. The
        roofs are the highest that any of the runs measured.

        Raises:
            ResultError: the file's device or driver is another.
        """
        if not path.exists():
            return self
        earlier = load(path)
        if earlier.device != self.device:
            raise ResultError(
                f"{path} holds rows of {earlier.device}; this is {self.device}. "
                "Name another file, or remove that one."
            )
        peers = {**earlier.peers, **self.peers}
        if (earlier.versions, {**peers, **earlier.peers}) != (self.versions, peers):
            return self
        roofs = self.roofs.highest(earlier.roofs)
        return replace(self, peers=peers, roofs=roofs, rows=earlier.rows)


def load(path: Path) -> Result:
    """Return what `Result.save` wrote."""
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    device, roofs = DeviceInfo(**values.pop("device")), Roofs(**values.pop("roofs"))
    rows = tuple(Row.from_json(row) for row in values.pop("rows"))
    return Result(device=device, roofs=roofs, rows=rows, **values)


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the numbers that are not None; None of nothing."""
    logs = [log(value) for value in values if value]
    return exp(sum(logs) / len(logs)) if logs else None


def worst(values: Iterable[float | None]) -> float | None:
    """Return the least number that is not None; None of nothing."""
    return min((value for value in values if value), default=None)
