"""Fills a database with synthetic measurements and times what must not slow down with its size.

    python -m benchmarks database-size --measurements 10000,1000000,10000000 [--db URL]

Timed are the lookup at dispatch (which reads memory), the reading of a device's winners at start,
one more measurement, and the pages of the service. It measures no kernel.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import Connection, func, insert, select, true

from benchmarks.timing import Call
from oclgen import GENERATOR_VERSION
from oclgen.families.gemm import gemm_register
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tuned_db import Chooser, DeviceStore, Store, open_store
from tuned_db.database.models import DeviceRow, MeasurementRow, TuningRow
from tuned_db.service import guard
from tuned_db.service.app import create_app
from tuned_db.storage.rows import columns_of

TRIALS = 64
"""Measurements per problem, as `oclgen tune` makes by default."""
PER_DEVICE = 1000
"""Problems per device: three networks' worth, in all directions."""
BATCH = 100_000
INFO = DeviceInfo("Synthetic GPU 0", "Nobody", "gpu", "synthetic 0", "None", "3.0", "1.0", 8)
LIMITS = Limits(kind="gpu", local_bytes=48 * 1024, max_work_group=256, max_work_items=(256,) * 3)


def main(sizes: Sequence[int], db: str | None) -> None:
    """Fill step by step to `sizes` measurements, and print a row of times after each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "size.sqlite"
        store = open_store(db or file)
        tunings = _tunings(store)  # of an earlier run, if --db names it
        for size in sizes:
            begin, before = time.perf_counter(), tunings
            tunings = max(size // TRIALS, before)
            _fill(store, before, tunings, _last_key(store) - before * TRIALS)
            rate = (tunings - before) * TRIALS / (time.perf_counter() - begin)
            _report(store, size, rate, file)


def _tunings(store: Store) -> int:
    with store.database.reading() as connection:
        return connection.execute(select(func.count()).select_from(TuningRow)).scalar_one()


def _last_key(store: Store) -> int:
    """Return the greatest key: what was recorded while times were taken has keys as well."""
    with store.database.reading() as connection:
        return connection.execute(select(func.max(MeasurementRow.id))).scalar() or 0


def _fill(store: Store, first: int, last: int, gap: int) -> None:
    """Add tunings `first` to `last` with their measurements, the last of each being the winner."""
    step = BATCH // TRIALS
    for start in range(first, last, step):
        numbers = range(start, min(start + step, last))
        with store.database.writing() as connection:
            devices = [n for n in numbers if n % PER_DEVICE == 0]
            if devices:
                connection.execute(insert(DeviceRow), [_device(n // PER_DEVICE) for n in devices])
            connection.execute(insert(TuningRow), [_tuning(n, gap) for n in numbers])
            if start == 0:
                connection.execute(insert(MeasurementRow), list(_trials()))
            _copy_trials(connection, numbers, gap)
    if store.database.engine.dialect.name == "postgresql":  # its counters know no given keys
        with store.database.writing() as connection:
            for table in (DeviceRow, TuningRow, MeasurementRow):
                counter = func.pg_get_serial_sequence(table.__tablename__, "id")
                connection.execute(select(func.setval(counter, func.max(table.id))))


def _copy_trials(connection: Connection, numbers: range, gap: int) -> None:
    """Give tunings the measurements of the first one, by the database itself, which is fastest."""
    names = [c.name for c in MeasurementRow.__table__.columns if c.name not in ("id", "tuning_id")]
    places = ((TuningRow.id - 1) * TRIALS + MeasurementRow.id + gap, TuningRow.id)
    copies = (
        select(*places, *(getattr(MeasurementRow, name) for name in names))
        .join(TuningRow, true())
        .where(MeasurementRow.tuning_id == 1, MeasurementRow.id <= TRIALS)
        .where(TuningRow.id.between(max(numbers[0], 1) + 1, numbers[-1] + 1))
    )
    connection.execute(insert(MeasurementRow).from_select(["id", "tuning_id", *names], copies))


def _device(number: int) -> dict[str, Any]:
    info = replace(INFO, name=f"Synthetic GPU {number}", architecture=f"synthetic {number}")
    return asdict(info) | {"id": number + 1, "peak_gflops": 1000.0, "peak_gbytes": 100.0}


def _tuning(number: int, gap: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "device_id": number // PER_DEVICE + 1,
        "generator": GENERATOR_VERSION,
        "problem": _problem(number).key(),
        "trials": TRIALS,
        "winner_id": (number + 1) * TRIALS + gap,
    }


def _problem(number: int) -> GemmProblem:
    return GemmProblem(8 + number % PER_DEVICE, 64, 64)


VARIANT = Variant(gemm_register.NAME, gemm_register.DEFAULT)
CONFIG = json.loads(VARIANT.to_json())
ROW = columns_of(
    Variant(gemm_register.NAME, gemm_register.DEFAULT), Measurement((1.0, 1.1, 1.2), error=1e-7)
)


def _trials() -> Iterator[dict[str, Any]]:
    """Yield the measurements of the first tuning, the last of which is the winner."""
    for trial in range(1, TRIALS + 1):
        config = json.dumps(CONFIG | {"item_m": trial}, sort_keys=True, separators=(",", ":"))
        winner = trial == TRIALS
        yield ROW | {
            "id": trial,
            "tuning_id": 1,
            "config": Variant(gemm_register.NAME, gemm_register.DEFAULT).to_json()
            if winner
            else config,
            "ms": 1.1 if winner else 2.0 + trial,
        }


def _report(store: Store, size: int, rate: float, file: Path) -> None:
    chooser = Chooser(store, INFO, LIMITS)
    known, unknown = _problem(7), GemmProblem(77, 65, 63)
    device = store.of(INFO)
    limits = guard.RequestLimits(reads_per_s=1e9, writes_per_s=1e9)
    # with a token, so that no page is one that was kept
    web = TestClient(create_app(store, limits), headers={"Authorization": "Bearer none"})

    last = _tunings(store)
    measured, unseen = Measurement((5.0,), error=0.0), count(1000)
    newest = f"/api/v1/winners?after={max(last - 60, 0)}"
    times = {
        "memo": _best(lambda: chooser.choose(known), 1000),
        "first": _best(lambda: next(chooser.candidates(unknown)), 5),
        "start": _best(lambda: Chooser(store, INFO, LIMITS), 3),
        "record": _best(lambda: _keep(device, measured, next(unseen)), 5),
        "page /": _best(lambda: web.get("/").raise_for_status(), 3),
        "device": _best(lambda: web.get("/devices/1").raise_for_status(), 3),
        "filter": _best(lambda: web.get("/devices/1?text=900x").raise_for_status(), 3),
        "sorted": _best(lambda: web.get("/devices/1?sort=-ms").raise_for_status(), 3),
        "compare": _best(lambda: web.get("/compare?left=1&right=1").raise_for_status(), 3),
        "problems": _best(lambda: web.get("/problems").raise_for_status(), 3),
        "problem": _best(lambda: web.get(f"/problem?key={known.key()}").raise_for_status(), 3),
        "failures": _best(lambda: web.get("/devices/1/failures").raise_for_status(), 3),
        "history": _best(lambda: web.get(f"/tunings/{last}").raise_for_status(), 3),
        "api": _best(lambda: web.get(newest).raise_for_status(), 3),
    }
    disk = f"{file.stat().st_size / 2**30:.2f} GiB" if file.is_file() else store.name
    print(f"{size} measurements, {last} problems, {disk}, filled at {rate:.0f} rows/s")
    print(
        "  " + ", ".join(f"{what} {_unit(seconds)}" for what, seconds in times.items()), flush=True
    )


def _keep(device: DeviceStore, measured: Measurement, item_m: int) -> None:
    variant = Variant(gemm_register.NAME, replace(gemm_register.DEFAULT, item_m=item_m))
    device.record(_problem(7), variant, measured)


def _best(action: Call, repeats: int) -> float:
    """Return the least seconds of an action, after one that warms up."""
    action()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        found.append(time.perf_counter() - begin)
    return min(found)


def _unit(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
