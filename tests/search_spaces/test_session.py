"""A session holds the lock while it measures, keeps its end, and says what its times are worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

pytest.importorskip("pyopencl")

import oclgen
from oclgen.families.gemm import gemm_register
from oclgen.keys import parse_gemm
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Cache, Measurement
from oclgen.measuring.child import TIMEOUTS
from oclgen.measuring.peak import Peak
from oclgen.opencl.exclusive import BusyError, kind_of
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces import orders
from search_spaces import session as module
from search_spaces import space as space_module
from search_spaces.orders import Order
from search_spaces.progress import Budget, OutOfTimeError
from search_spaces.session import Session
from tuned_db import Record, Store, open_store
from tuned_db.database.models import MeasurementRow, TuningRow

pytestmark = pytest.mark.usefixtures("unvectorised")

INFO = DeviceInfo("Imaginary", "None", "gpu", "imaginary 1", "OpenCL", "3.0", "1.0", 132)
LIMITS = Limits("gpu", 47 * 1024, 1024, (1024, 1024, 64), 2**34, 2**36, 132, 1)
PROBLEM, OTHER = parse_gemm("64x64x64"), parse_gemm("32x64x64")
FAMILIES = frozenset({gemm_register.NAME})


@dataclass(frozen=True)
class Imaginary:
    """The attributes of a device that a session reads."""

    index: int = 0
    name: str = "Imaginary"
    info: DeviceInfo = INFO
    limits: Limits = LIMITS


@dataclass
class Lab:
    """What happened, in order, and what is measured."""

    events: list[str] = field(default_factory=list)
    peak: Peak = field(default_factory=lambda: Peak(100.0, 10.0))
    answer: Callable[[Any], Measurement] = lambda _: Measurement((1.0,), error=1e-7, seed=3)
    is_busy: bool = False


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Replace device, lock, peak and process by ones that note what is done with them."""
    lab, device = Lab(), Imaginary()

    @contextmanager
    def exclusive(candidates: Any, wait: Callable[[], None], until: float) -> Iterator[Any]:
        if lab.is_busy:
            wait()
            raise BusyError
        lab.events.append("locked")
        yield candidates[0][0]
        lab.events.append("free")

    @dataclass
    class Worker:
        index: int
        info: DeviceInfo
        timeouts: dict[Any, float]
        cache: Cache = "warm"
        builders: int = 0
        overlaps: bool = True

        def begin(self) -> None:
            lab.events.append("begun")

        def build_ahead(self, *asked: Any) -> None:
            raise AssertionError("there are no builders")

        drop_ahead = build_ahead

        def measure(self, *asked: Any) -> Measurement:
            lab.events.append(f"{self.cache} times")
            return lab.answer(self)

        def close(self) -> None:
            lab.events.append("closed")

    def measured_peak(_: Any) -> Peak:
        lab.events.append("peak")
        return lab.peak

    monkeypatch.setattr(module, "select", lambda _: device)
    monkeypatch.setattr(module, "devices", lambda: (device,))
    monkeypatch.setattr(module, "exclusive", exclusive)
    monkeypatch.setattr(module, "Worker", Worker)
    monkeypatch.setattr("oclgen.measuring.peak.measure", measured_peak)
    return lab


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "tuned.sqlite")


def test_all_is_measured_while_the_lock_is_held(lab: Lab, store: Store) -> None:
    with Session(0, store) as session:
        session.tune([PROBLEM], Budget(1), FAMILIES)
    assert lab.events == ["locked", "begun", "peak", "warm times", "closed", "free"]


def test_claims_are_verified_while_the_lock_is_held(lab: Lab, store: Store) -> None:
    claim = Record(
        device=INFO,
        generator=oclgen.GENERATOR_VERSION,
        problem=PROBLEM.key(),
        family=gemm_register.NAME,
        config=Variant(gemm_register.NAME, gemm_register.DEFAULT).to_json(),
        samples=(1.0,),  # what it takes here: a slower claim is measured beside the next best
        error=1e-7,
        trials=1,
        created="2026-01-01T00:00:00Z",
        version="1",
    )
    store.merge([claim])
    with Session(0, store) as session:
        (verdict,) = session.verify()
    assert verdict.measurement.ms == 1.0
    assert lab.events == ["locked", "begun", "peak", "warm times", "closed", "free"]


def test_the_best_known_peak_stays_and_load_is_said(lab: Lab, store: Store) -> None:
    said: list[str] = []
    for gflops in (100.0, 50.0):
        lab.peak = Peak(gflops, 10.0)
        with Session(0, store, say=said.append) as session:
            (result,) = session.tune([PROBLEM, OTHER][int(gflops == 50) :][:1], Budget(1), FAMILIES)
        assert session.level is not None
        assert session.level.best.gflops == 100.0
    assert store.of(INFO).peak() == (100.0, 10.0)
    assert store.of(INFO).peaks() == dict.fromkeys(("bf16", "fp16", "tf32"), 100.0)
    assert said == [result.notice]
    assert "peak of 50 GFLOP/s is below 0.8 of the 100 GFLOP/s" in result.notice


def test_cold_times_are_taken_cold_and_are_kept_as_such(lab: Lab, store: Store) -> None:
    with Session(0, store) as session:
        session.tune([PROBLEM], Budget(2, cache="cold"), FAMILIES)
    assert "warm times" not in lab.events
    with store.database.reading() as connection:
        kept = connection.execute(
            select(TuningRow.cache, MeasurementRow.seed).join_from(TuningRow, MeasurementRow)
        ).all()
    assert [tuple(row) for row in kept] == [("cold", 3)] * 3  # two trials and the winner


def test_a_device_that_stays_busy_leaves_all_not_reached(lab: Lab, store: Store) -> None:
    lab.is_busy = True
    said: list[str] = []
    with Session(0, store, ends=time.monotonic(), say=said.append) as session:
        results = session.tune([PROBLEM, OTHER], Budget(4), FAMILIES)
    assert [result.status for result in results] == ["not reached"] * 2
    assert said == ["waiting: another process measures on the device"]


def test_a_stage_takes_no_longer_than_what_is_left_and_blames_no_variant(
    lab: Lab, store: Store
) -> None:
    seen: list[float] = []

    def slow(worker: Any) -> Measurement:
        seen.append(worker.timeouts["compiling"])
        session.ends = time.monotonic() - 1
        return Measurement(invalidity="timeout", reason="took longer")

    lab.answer = slow
    with Session(0, store, ends=time.monotonic() + 20) as session:
        (result,) = session.tune([PROBLEM], Budget(4), FAMILIES)
    assert 0 < seen[0] <= 20
    assert (result.status, result.trials) == ("not reached", 0)
    assert store.of(INFO).measured(PROBLEM) == {}


def test_a_limit_without_an_end_is_the_stage_s_own(lab: Lab, store: Store) -> None:
    lab.answer = lambda worker: Measurement((worker.timeouts["compiling"],))
    with Session(0, store, ends=inf) as session:
        (result,) = session.tune([PROBLEM], Budget(1), FAMILIES)
    assert result.best is not None
    assert result.best.ms == TIMEOUTS["compiling"]


def test_a_resident_process_stays_until_it_is_closed(lab: Lab, store: Store) -> None:
    session = Session(0, store, with_peak=False, is_resident=True)
    for problem in (PROBLEM, OTHER):
        with session:
            session.tune([problem], Budget(1), FAMILIES)
    session.close()
    one = ["begun", "warm times", "free"]
    assert lab.events == ["locked", *one, "locked", *one, "closed"]


def test_what_serves_is_the_first_start(lab: Lab, store: Store) -> None:
    """A guess of the model or a family's `DEFAULT` too: nothing is recorded here yet."""
    tried: list[Variant] = []
    with Session(0, store) as session:
        served = session.chooser.choose(PROBLEM).variant
        session.tune([PROBLEM], Budget(1), report=lambda one: tried.append(one.variant))
    assert tried == [served]


def test_variants_are_compared_without_being_kept(lab: Lab, store: Store) -> None:
    one, other = (Variant(gemm_register.NAME, gemm_register.DEFAULT) for _ in range(2))
    session = Session(0, store)
    with pytest.raises(OutOfTimeError), session:
        session.ends = time.monotonic() - 1
        lab.answer = lambda _: Measurement(invalidity="timeout")
        session.compare(PROBLEM, [one, other])
    lab.answer = lambda _: Measurement((2.0,), error=1e-7)
    with Session(0, store) as session:
        assert session.compare(PROBLEM, [one, other]) == [2.0, 2.0]
    assert store.of(INFO).measured(PROBLEM) == {}


def test_a_variant_beyond_the_tolerance_counts_as_wrong(lab: Lab, store: Store) -> None:
    with Session(0, store) as session:
        session.tolerance = 1e-8
        (result,) = session.tune([PROBLEM], Budget(1), FAMILIES)
    assert (result.status, result.outcomes) == ("no variant", {"correctness": 1})
    assert result.reason == "relative L2 error 1.00e-07, allowed 1e-08"


def test_turns_of_a_process_share_what_is_open(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that takes turns measures in one process, and enumerates a space once."""
    monkeypatch.setattr(orders, "_sessions", {})
    spaces: list[str] = []
    space_of = space_module.space_of

    def counted(family: str, *more: Any) -> Any:
        spaces.append(family)
        return space_of(family, *more)

    monkeypatch.setattr("search_spaces.spaces.space_of", counted)
    where = str(tmp_path / "tuned.sqlite")
    order = Order(kind_of(INFO), (PROBLEM.key(),), Budget(3, 1e6), 1, FAMILIES, where)
    for tried in (1, 2, 3):
        (result,) = orders.take(order)
        assert result.tried == tried
    assert spaces == [gemm_register.NAME]
    assert lab.events.count("closed") == 0
    (session,) = orders._sessions.values()
    session.close()
    assert lab.events.count("closed") == 1


def test_a_turn_is_over_when_its_time_is_however_late_it_is_taken(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "_sessions", {})
    where, ended = str(tmp_path / "tuned.sqlite"), time.monotonic() - 1
    order = Order(kind_of(INFO), (PROBLEM.key(),), Budget(1, 1e6), 1, FAMILIES, where, ended)
    assert [one.status for one in orders.take(order)] == ["not reached"]
    assert [one.status for one in orders.take(replace(order, ends=None))] == ["tuned"]
    orders._sessions.popitem()[1].close()


def test_a_turn_that_fails_leaves_nothing_open(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: Any) -> Measurement:
        raise ConnectionError("the database went away")

    monkeypatch.setattr(orders, "_sessions", {})
    lab.answer = lost
    where = str(tmp_path / "tuned.sqlite")
    order = Order(kind_of(INFO), (PROBLEM.key(),), Budget(3, 1e6), 1, FAMILIES, where)
    with pytest.raises(ConnectionError, match="went away"):
        orders.take(order)
    assert orders._sessions == {}
    assert lab.events[-1] == "closed"


def test_a_product_is_tuned_in_three_lines(device: Any, tmp_path: Path) -> None:
    where = tmp_path / "mine.sqlite"
    (result,) = oclgen.tune("24x16x8", device=device.index, trials=2, store=where)
    assert (result.status, result.trials) == ("tuned", 2)
    assert str(result).startswith("gemm:24x16x8:fp32:nn:b1:-:-:none: tuned, ")
    problem: Problem = parse_gemm("24x16x8")
    assert open_store(where).of(device.info).trials(problem) == 2
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = oclgen.nothing
