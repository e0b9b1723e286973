"""Full sets of measurements, failures included, as plain values that travel in files.

A set has the measurements of one device. `selftest` and `dataset` write sets; `take` stores them in
a database, as claims. `tuned_db.records.exchange` has records, which are winners only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from sqlalchemy import Connection, select

from oclgen.limits import DeviceInfo
from oclgen.measurement import Invalidity, Measurement
from tuned_db.database.models import MEASURED, DeviceRow, MeasurementRow, TuningRow
from tuned_db.files.personal import without_names
from tuned_db.records.fields import Milliseconds, strict
from tuned_db.records.record import Record
from tuned_db.records.schema import HINTS
from tuned_db.storage import device_rows
from tuned_db.storage.arrivals import CHUNK, Arrival, Place, take_in
from tuned_db.storage.batches import Source, count_batch, open_batch
from tuned_db.storage.merging import Merge
from tuned_db.storage.rows import TRIALS
from tuned_db.storage.store import Store

REASON_LIMIT = 500
"""Characters of a failure's reason that travel."""
ROW: dict[str, Any] = {
    **{name: HINTS[name] for name in ("problem", "generator", "cache", "trials")},
    "wins": bool,
    **{name: HINTS[name] for name in ("family", "config")},
    "samples": Annotated[list[Milliseconds], Field(max_length=10_000)],
    "error": HINTS["error"],
    "invalidity": Invalidity,
    "reason": Annotated[str, Field(max_length=REASON_LIMIT)],
    **{name: HINTS[name] for name in ("created", "version", "seed", "conditions", "digest")},
    "promoted": bool,
}
"""The fields of a measurement: those of its tuning (`trials` variants were tried for it), whether
it wins there, and the columns of `tuned_db.database.models.MeasurementRow`; what a record has, too,
is the same there. A failure has no samples."""
ROWS: TypeAdapter[Any] = TypeAdapter(strict("Measurement", ROW))
_COLUMNS = tuple(name for name in MEASURED if name in ROW)


@dataclass(frozen=True)
class Measured:
    """What was measured on one device: its limits and peak where they are known, and rows.

    `limits` is `oclgen.limits.Limits.to_json()`, `peak` fp32 GFLOP/s and GB/s of a copy, `peaks`
    GFLOP/s of other dtypes; `rows` have the fields of `ROW`, and are in one order everywhere.
    """

    device: DeviceInfo
    limits: dict[str, Any] | None
    peak: tuple[float, float] | None
    peaks: dict[str, float] | None
    rows: list[dict[str, Any]]

    def records(self) -> list[Record]:
        """Return the winners as records."""
        return [
            Record(
                **{name: row[name] for name in Record.__dataclass_fields__ if name in row}
                | {
                    "config": json.dumps(row["config"], sort_keys=True, separators=(",", ":")),
                    "samples": tuple(row["samples"]),
                    "device": self.device,
                    "peak": self.peak,
                    "peaks": self.peaks,
                }
            )
            for row in self.rows
            if row["wins"] and row["samples"]
        ]


def why_contradictory(row: dict[str, Any]) -> str | None:
    """Say what contradicts itself in a row whose fields are each in order, or None."""
    is_failure = row["invalidity"] != "none"
    if is_failure == bool(row["samples"]):
        return f"{row['invalidity']} with {len(row['samples'])} samples; a failure has none"
    if is_failure and row["wins"]:
        return "a failure cannot win"
    return None


def of_store(store: Store, *, everyone: bool = False) -> Iterator[Measured]:
    """Yield what was measured by those who write to a database, failures too, device by device.

    Devices and rows are sorted, so that the same measurements give the same sequence. What runs
    under a device profile is left out: its times are another device's.

    Args:
        store: what is read.
        everyone: what came from elsewhere is yielded, too.

    Raises:
        DatabaseError: the database fails.
    """
    asked = select(
        *(getattr(MeasurementRow, name) for name in (*_COLUMNS, "id")),
        *(TuningRow.problem, TuningRow.generator, TuningRow.cache, TRIALS.label("trials")),
        *(TuningRow.winner_id, TuningRow.device_id),
    ).join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
    if not everyone:
        asked = asked.where(MeasurementRow.origin == "")
    with store.database.reading() as connection:
        devices = connection.execute(select(DeviceRow.__table__)).all()
        ordered = sorted(devices, key=lambda row: _place(device_rows.info_of(row)))
        for device in ordered:
            info = device_rows.info_of(device)
            if info.is_profiled:
                continue
            found = connection.execute(asked.where(TuningRow.device_id == device.id)).mappings()
            if made := sorted((_row(dict(one)) for one in found), key=_order):
                claimed = device.claimed_peaks if everyone else None
                peaks = device_rows.known_peaks(device.peaks, claimed)
                yield Measured(info, device.limits, _peak(device, everyone), peaks, made)


def _peak(device: Any, everyone: bool) -> tuple[float, float] | None:
    """Return what a device reaches as it was measured here, else, if wanted, as is claimed."""
    for gflops, gbytes in (
        (device.peak_gflops, device.peak_gbytes),
        (device.claimed_gflops, device.claimed_gbytes),
    )[: 2 if everyone else 1]:
        if gflops is not None and gbytes is not None:
            return gflops, gbytes
    return None


def _row(values: dict[str, Any]) -> dict[str, Any]:
    made = {name: values[name] for name in ROW if name not in ("wins", "config", "reason")}
    made["wins"] = values["id"] == values["winner_id"]
    made["config"] = json.loads(values["config"])
    made["reason"] = without_names(values["reason"])[:REASON_LIMIT]
    return {name: made[name] for name in ROW}


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    place = (row["generator"], row["problem"], row["cache"] != "warm")
    config = json.dumps(row["config"], sort_keys=True)
    return (*place, row["family"], config, row["created"], row["samples"], row["invalidity"])


def take(store: Store, sets: Iterable[Measured], origin: str, source: Source) -> Merge:
    """Take in sets as claims that came by `origin`, failures too; doing it again does no harm.

    Args:
        store: what is written to.
        sets: in any order.
        origin: how they came; it is not empty.
        source: who sent them.

    Raises:
        DatabaseError: the database fails; whole chunks before that are kept.
    """
    improved = kept = 0
    for one in sorted(sets, key=lambda one: _place(one.device)):
        # in one order everywhere, so that two who write to a server cannot wait for each other
        arrivals = sorted((_arrival(one, row, origin) for row in one.rows), key=_by_place)
        for start in range(0, max(len(arrivals), 1), CHUNK):
            chunk = arrivals[start : start + CHUNK]
            with store.database.writing() as connection:
                _describe(connection, one)
                batch = open_batch(connection, origin, source)
                won = take_in(connection, chunk, batch)
                count_batch(connection, batch, len(won) - won.count(None))
            source = replace(source, batch=batch)
            improved += won.count(True)
            kept += len(won) - won.count(True)
            store.database.let_others_write()
    return Merge(improved, kept, source.batch)


def _place(info: DeviceInfo) -> tuple[Any, ...]:
    return tuple(asdict(info).values())


def _by_place(one: Arrival) -> tuple[Any, ...]:
    return one.place[1:]


def _describe(connection: Connection, one: Measured) -> None:
    """Keep what a set says of its device, where nothing was measured here."""
    gflops, gbytes = one.peak or (None, None)
    device_rows.raise_peak(connection, one.device, gflops, gbytes, one.peaks, claimed=True)
    if one.limits is not None:
        device_rows.set_limits(connection, one.device, one.limits, claimed=True)


def _arrival(one: Measured, row: dict[str, Any], origin: str) -> Arrival:
    columns: dict[str, Any] = {name: row[name] for name in _COLUMNS}
    times = Measurement(tuple(row["samples"]))
    columns |= {
        "config": json.dumps(row["config"], sort_keys=True, separators=(",", ":")),
        "ms": times.ms if times.ok else None,
        "spread": times.spread if times.ok else None,
        "origin": origin,
    }
    place = Place(one.device, row["generator"], row["problem"], row["cache"])
    return Arrival(place, columns, row["wins"], {"claimed": row["trials"]})
