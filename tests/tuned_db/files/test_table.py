"""Tables of measurements: what a database holds of a device, for models of times."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

from oclgen import profiles
from oclgen.limits import Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import FAMILY, INFO, LIMITS, SQUARE, record, timed, variant
from tuned_db import Store, open_store
from tuned_db.files.table import Head, Row, of_store, read, write
from tuned_db.storage.upkeep import absorb

FAILED = Measurement(invalidity="compile", reason="no such type")
WITH_MORE = Limits(
    kind="gpu", extensions=frozenset({"b", "a"}), instructions=frozenset({"cp_async"})
)


def filled(path: Path) -> Store:
    store = open_store(path)
    mine = store.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(2.0))
    mine.record(SQUARE, variant(item_m=2), FAILED)
    store.merge([record(GemmProblem(8, 8, 8))])  # a claim
    store.of(INFO, "cold").record(SQUARE, variant(item_m=1), replace(timed(9.0), cache="cold"))
    return store


def test_limits_come_back_from_plain_values() -> None:
    for limits in (LIMITS, WITH_MORE):
        assert Limits.from_json(limits.to_json()) == limits


def test_failures_are_exported_and_claims_and_cold_times_are_not(tmp_path: Path) -> None:
    store = filled(tmp_path / "one.sqlite")
    store.of(INFO).note_limits(WITH_MORE)
    store.of(INFO).note_peak(1000.0, 100.0)
    path = tmp_path / "table.jsonl.gz"
    assert write(path, of_store(store)) == 2
    assert write(path, of_store(store)) == 2  # anew, not after
    head = Head(INFO, WITH_MORE, 1000.0, 100.0)
    key = SQUARE.key()
    assert list(read(path)) == [
        (head, Row(key, FAMILY, variant(item_m=1).values(), 2.0, "none")),
        (head, Row(key, FAMILY, variant(item_m=2).values(), inf, "compile")),
    ]


def test_a_device_that_nothing_describes_is_left_out(tmp_path: Path) -> None:
    store = filled(tmp_path / "one.sqlite")
    assert list(of_store(store)) == []
    store.of(INFO).note_peak(1000.0, 100.0)
    assert list(of_store(store)) == []


def test_a_merge_brings_what_describes_a_device(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "one.sqlite"), open_store(tmp_path / "two.sqlite")
    source.of(INFO).note_limits(LIMITS)
    source.of(INFO).note_peak(1000.0, 100.0)
    absorb(target, source, trusted=True)
    ((head, rows),) = of_store(target)
    assert (head.limits, len(rows)) == (LIMITS, 2)


def test_times_under_a_profile_are_left_out(tmp_path: Path) -> None:
    """They are those of the device underneath: a model would learn that a GPU is that slow."""
    store = open_store(tmp_path / "one.sqlite")
    taken = profiles.load("apple_m1").info(INFO)
    for info in (INFO, taken):
        mine = store.of(info)
        mine.record(SQUARE, variant(item_m=1), timed(2.0))
        mine.note_limits(LIMITS)
        mine.note_peak(1000.0, 100.0)
    assert [head.device for head, _ in of_store(store)] == [INFO]
