"""Tables of measurements, losers and failures included; models of times are made from them.

A table is JSON lines under gzip: a line with `device` begins the measurements of one device, and a
line per measurement follows. `oclgen db measurements` writes what a database has, and
`python -m benchmarks collect` what it measures; `python -m benchmarks fit` reads both.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from sqlalchemy import select

from oclgen.limits import DeviceInfo, Limits
from tuned_db.database.models import DeviceRow, MeasurementRow, TuningRow
from tuned_db.records.digests import is_of_today
from tuned_db.records.record import json_object
from tuned_db.storage import device_rows, rows
from tuned_db.storage.store import Store


@dataclass(frozen=True)
class Head:
    """What the measurements below it were taken on: device, limits, and rates that it reached."""

    device: DeviceInfo
    limits: Limits
    gflops: float
    gbytes: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "limits": self.limits.to_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Head:
        """Return what `to_json` wrote."""
        device, limits = DeviceInfo(**values["device"]), Limits.from_json(values["limits"])
        return cls(device, limits, values["gflops"], values["gbytes"])


@dataclass(frozen=True)
class Row:
    """One measurement: milliseconds, infinite for a failure, of which `invalidity` is the kind.

    `turns` are the least milliseconds of each of several independent turns, `ms` the least of all;
    none where a table keeps one figure alone.
    """

    problem: str
    family: str
    config: dict[str, int | bool | str]
    ms: float
    invalidity: str
    turns: tuple[float, ...] = ()


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


def write(path: Path, parts: Iterable[tuple[Head, Sequence[Row]]]) -> int:
    """Write a file anew and return how many measurements it holds.

    Args:
        path: the file.
        parts: what was measured, by device.
    """
    path.unlink(missing_ok=True)
    count = 0
    for head, measured in parts:
        append(path, head, measured)
        count += len(measured)
    return count


def _to_json(row: Row) -> dict[str, Any]:
    values = {**asdict(row), "ms": None if row.ms == inf else round(row.ms, 6)}
    turns = [round(ms, 6) for ms in values.pop("turns")]
    return {**values, "turns": turns} if turns else values


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
                turns = tuple(values.pop("turns", ()))
                yield head, Row(**{**values, "ms": ms}, turns=turns)


def of_store(store: Store) -> Iterator[tuple[Head, list[Row]]]:
    """Yield what was measured on each device with warm caches and today's kernels, failures too.

    Claims from elsewhere are left out. So are three kinds of devices: those that were not tuned
    since limits are stored, and those without a known peak, because they cannot be described; and
    those under a profile, because their times are another device's.

    Args:
        store: what is read.

    Raises:
        DatabaseError: the database fails.
    """
    asked = (
        rows.measured()
        .add_columns(TuningRow.device_id)
        .where(MeasurementRow.origin == "", TuningRow.cache == "warm")
        .order_by(TuningRow.device_id, TuningRow.problem, MeasurementRow.id)
    )
    with store.database.reading() as connection:
        devices = connection.execute(select(DeviceRow.__table__)).all()
        found = [one for one in connection.execute(asked) if is_of_today(one)]
    measured = defaultdict(list)
    for one in found:
        ms = inf if one.ms is None else one.ms
        row = Row(one.problem, one.family, json_object(one.config), ms, one.invalidity)
        measured[one.device_id].append(row)
    for device in devices:
        if None not in (device.limits, device.peak_gflops, device.peak_gbytes):
            info = device_rows.info_of(device)
            limits = Limits.from_json(device.limits)
            head = Head(info, limits, device.peak_gflops, device.peak_gbytes)
            if measured[device.id] and not info.is_profiled:
                yield head, measured[device.id]
