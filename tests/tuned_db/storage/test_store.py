"""The store: one winner per device, driver, generator and problem, and a history after it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import DeviceStore, Store, open_store
from tuned_db.database.models import MeasurementRow, TuningRow
from tuned_db.database.opening import locate


def test_the_faster_wins_and_the_history_stays(store: Store) -> None:
    device = store.of(INFO)
    assert device.record(SQUARE, variant(item_m=1), timed(2.0, 2.5, 3.0))
    assert not device.record(SQUARE, variant(item_m=2), timed(2.5))
    assert device.record(SQUARE, variant(item_m=3), timed(1.0))
    assert device.incumbent(SQUARE) == (variant(item_m=3), 1.0)
    assert sorted(device.measured(SQUARE).values()) == [1.0, 2.5, 2.5]
    assert device.trials(SQUARE) == 3


def test_a_failure_is_remembered_and_never_wins(store: Store) -> None:
    device = store.of(INFO)
    failure = Measurement(invalidity="compile", reason="error: " + "x" * 100_000)
    assert not device.record(SQUARE, variant(), failure)
    assert device.winner(SQUARE) is None
    assert device.measured(SQUARE) == {variant(): inf}
    assert device.trials(SQUARE) == 1
    with pytest.raises(ValueError, match="a failure cannot win: compile"):
        device.promote(SQUARE, variant(), failure)


def test_measuring_again_is_no_new_trial(store: Store) -> None:
    device = store.of(INFO)
    for ms in (2.0, 3.0, 1.0):
        device.record(SQUARE, variant(), timed(ms))
    assert device.trials(SQUARE) == 1
    assert device.measured(SQUARE) == {variant(): 1.0}


def test_who_won_side_by_side_wins_even_if_another_was_luckier_before(store: Store) -> None:
    device = store.of(INFO)
    device.record(SQUARE, variant(item_m=1), timed(1.0))
    device.promote(SQUARE, variant(item_m=2), timed(1.1, 1.2))
    best = device.incumbent(SQUARE)
    assert best is not None
    assert best[0] == variant(item_m=2)
    assert best[1] == pytest.approx(1.15)


def test_devices_drivers_and_problems_are_kept_apart(store: Store) -> None:
    other = store.of(replace(INFO, driver_version="2"))
    store.of(INFO).record(SQUARE, variant(), timed(1.0))
    assert other.winner(SQUARE) is None
    assert other.measured(SQUARE) == {}
    assert store.of(INFO).winner(GemmProblem(1, 1, 1)) is None
    other.record(SQUARE, variant(), timed(5.0))
    assert [one.ms for one in store.all_winners()] == [1.0, 5.0]


def test_the_peaks_of_all_devices_are_read_at_once(store: Store) -> None:
    other, unmeasured = (replace(INFO, name=name) for name in ("other", "unmeasured"))
    store.of(INFO).note_peak(100.0, 10.0, {"fp16": 200.0})
    store.of(other).note_peak(50.0, 5.0)
    store.of(unmeasured).record(SQUARE, variant(), timed(1.0))
    assert store.peaks() == {INFO: {"fp32": 100.0, "fp16": 200.0}, other: {"fp32": 50.0}}


def test_a_winner_of_unknown_kernels_is_no_winner_here(store: Store) -> None:
    store.merge([record(generator="0"), record(family="gone", generator="99")])
    store.merge([record(config='{"tile":1}')])
    assert store.of(INFO).winner(SQUARE) is None
    assert len(store.all_winners()) == 3


def test_a_winner_tells_all_of_its_provenance(store: Store) -> None:
    store.of(INFO).record(SQUARE, variant(), timed(0.1234567891, 1.0, 0.5))
    won = store.of(INFO).winner(SQUARE)
    assert won is not None
    assert (won.device, won.problem, won.trials) == (INFO, SQUARE.key(), 1)
    assert won.samples == (0.123457, 1.0, 0.5)
    assert won.error == 1e-7
    assert won.why_unreadable() is None


def variant_of(device: DeviceStore) -> Any:
    """The config of the winner for the square."""
    incumbent = device.incumbent(SQUARE)
    assert incumbent is not None
    return incumbent[0].config


def test_cold_and_warm_times_never_compete(store: Store) -> None:
    """A winner of one state of the caches is neither incumbent nor rival of the other."""
    warm, cold = store.of(INFO), store.of(INFO, "cold")
    cold.record(SQUARE, variant(item_m=1), Measurement((2.0,), seed=1, cache="cold"))
    assert warm.incumbent(SQUARE) is None
    warm.record(SQUARE, variant(item_m=2), timed(1.0))
    assert variant_of(cold).item_m == 1
    assert cold.record(SQUARE, variant(item_m=3), Measurement((1.5,), cache="cold"))
    cold.promote(SQUARE, variant(item_m=4), timed(1.6))  # a duel does not say how it timed
    assert (variant_of(cold).item_m, variant_of(warm).item_m) == (4, 2)
    assert [(one.cache, one.ms) for one in store.all_winners()] == [("warm", 1.0), ("cold", 1.6)]
    with pytest.raises(ValueError, match="no results for warm ones"):
        warm.record(SQUARE, variant(item_m=5), Measurement((0.1,), cache="cold"))


def test_a_clock_that_says_zero_gives_a_nanosecond(store: Store) -> None:
    store.of(INFO).record(SQUARE, variant(), timed(0.0))
    (kept,) = store.all_winners()
    assert kept.samples == (1e-6,)


def test_times_with_cold_caches_are_searched_apart(store: Store) -> None:
    warm, cold = store.of(INFO), store.of(INFO, "cold")
    conditions = {"mhz_before": 1980.0, "celsius_after": 45.5}
    flushed = Measurement((9.0,), seed=11, cache="cold", conditions=conditions)
    warm.record(SQUARE, variant(item_m=1), timed(2.0))
    cold.record(SQUARE, variant(item_m=2), flushed)
    cold.record(SQUARE, variant(item_m=3), Measurement(invalidity="compile", reason="no"))
    assert sorted(warm.measured(SQUARE).values()) == [2.0, inf]
    assert sorted(cold.measured(SQUARE).values()) == [9.0, inf]
    assert cold.trials(SQUARE) == 2
    assert [variant_of(one).item_m for one in (warm, cold)] == [1, 2]
    with store.database.reading() as connection:
        columns = (MeasurementRow.seed, TuningRow.cache, MeasurementRow.conditions)
        kept = connection.execute(
            select(*columns)
            .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
            .where(MeasurementRow.ms == 9.0)
        ).one()
    assert tuple(kept) == (11, "cold", conditions)


def test_threads_share_a_store(store: Store) -> None:
    def work(number: int) -> None:
        problem = GemmProblem(1 + number % 3, 1, 1)
        store.of(INFO).record(problem, variant(item_m=1 + number), timed(1.0 + number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert [one.ms for one in store.all_winners()] == [1.0, 2.0, 3.0]
    assert sum(one.trials for one in store.all_winners()) == 24


WRITER = """
import sys
from dataclasses import replace
from tests.tuned_db.tuned_samples import INFO, timed, variant
from oclgen.problem import GemmProblem
from tuned_db import open_store
path, number = sys.argv[1], int(sys.argv[2])
device = open_store(path).of(INFO)  # the first process makes the file
for trial in range(15):
    one = variant(item_m=1 + trial, unroll_k=1 + number)
    device.record(GemmProblem(8, 8, 8), one, timed(100.0 - trial - 20 * number))
"""


def test_many_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path, root = tmp_path / "shared.sqlite", str(Path(__file__).parents[3])
    program = f"import sys; sys.path.insert(0, {root!r})\n{WRITER}"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(number)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    errors = [writer.communicate(timeout=120)[1] for writer in writers]
    assert errors == [""] * 4
    device = open_store(path).of(INFO)
    assert device.trials(GemmProblem(8, 8, 8)) == 60
    assert len(device.measured(GemmProblem(8, 8, 8))) == 60
    won = device.winner(GemmProblem(8, 8, 8))
    assert won is not None
    assert won.ms == 100.0 - 14 - 60


def test_the_environment_and_the_user_folder_locate_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCLGEN_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    default = locate().database or ""
    assert default.startswith(str(tmp_path))
    assert default.endswith("tuned.sqlite")
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "elsewhere" / "mine.db"))
    assert open_store().all_winners() == []
    assert (tmp_path / "elsewhere" / "mine.db").is_file()
    monkeypatch.setenv("OCLGEN_DB", f"sqlite:///{tmp_path}/by_url.db")
    open_store()
    assert (tmp_path / "by_url.db").is_file()
    assert locate(tmp_path / "given.db").database == str(tmp_path / "given.db")
