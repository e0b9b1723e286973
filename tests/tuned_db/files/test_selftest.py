"""Check files: what one says, what it must not say, and what an import makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from oclgen import profiles
from oclgen.limits import Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE, timed, variant
from tuned_db import ImportFileError, Store, open_store
from tuned_db.files import personal
from tuned_db.files.measured import of_store, take
from tuned_db.files.selftest import is_selftest, read_selftest, to_bytes
from tuned_db.storage.batches import Source

HOST, USER = "annas-machine.example.org", "anna.b"
LOG = f"/home/{USER}/kernels/a.cl:3: error at {HOST} and annas-machine for {USER}, not annas"
LIMITED = replace(
    LIMITS,
    extensions=frozenset({"cl_khr_fp16"}),
    instructions=frozenset({"mma"}),
    declared_local_bytes=1 << 17,
)


def filled(path: Path) -> Store:
    """Two problems, one with a failure, one with a cold time; and a claim that is none of it."""
    store = open_store(path)
    mine = store.of(INFO)
    mine.note_limits(LIMITED)
    mine.note_peak(1000.0, 100.0)
    mine.record(SQUARE, variant(item_m=1), timed(2.0))
    mine.record(SQUARE, variant(item_m=2), timed(1.0, 1.5))
    mine.record(SQUARE, variant(item_m=4), Measurement(invalidity="compile", reason=LOG))
    cold = replace(timed(9.0), cache="cold", seed=3, conditions={"mhz_before": 900.0})
    store.of(INFO, "cold").record(GemmProblem(8, 8, 8), variant(), cold)
    return store


def facts(**more: Any) -> dict[str, Any]:
    known = {"devices": [asdict(INFO)], "device": asdict(INFO), "limits": LIMITED.to_json()}
    rates = {"gflops": 1000.0, "gbytes": 100.0, "peaks": {"bf16": 5e4}}
    return known | {"rates": rates, "torch": "2.13.0"} | more


FINDINGS = [
    ("device", "device", "ok", INFO.name),
    ("families", "gemm_register", "fail", LOG),
    ("families", "gemm_mma", "skipped", "no unit"),
]


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    monkeypatch.setattr("platform.node", lambda: HOST)
    monkeypatch.setattr("getpass.getuser", lambda: USER)
    personal._names.cache_clear()
    yield to_bytes(filled(tmp_path / "check.sqlite"), facts(), FINDINGS, 12.3)
    personal._names.cache_clear()


def test_a_file_is_read_back(content: bytes) -> None:
    assert is_selftest(content)
    check = read_selftest("x", content)
    assert (check.device, check.limits) == (INFO, LIMITED)
    assert [one.verdict for one in check.findings] == ["ok", "fail", "skipped"]
    assert len(check.measured.rows) == 4
    assert check.measured.peaks == {"bf16": 5e4}
    winners = check.measured.records()
    assert [(one.ms, one.cache, one.peak) for one in winners] == [
        (1.25, "warm", (1000.0, 100.0)),
        (9.0, "cold", (1000.0, 100.0)),
    ]


def test_nothing_in_it_tells_of_the_person_or_the_machine(content: bytes) -> None:
    text = content.decode()
    assert text.count("PATH:3: error at NAME and NAME for NAME, not annas") == 2
    for name in (USER, "machine.example", "a.cl", str(Path.cwd()), str(Path.home())):
        assert name not in text, name


def test_what_it_measured_is_a_claim_elsewhere_failures_too(content: bytes, store: Store) -> None:
    measured = read_selftest("x", content).measured
    came = take(store, [measured], "import", Source())
    assert (came.improved, came.kept) == (2, 2)
    again = take(store, [measured], "import", Source())
    assert (again.improved, again.kept) == (0, 4)
    winners = store.all_winners()
    assert [(one.ms, one.origin, one.trials) for one in winners] == [
        (1.25, "import", 3),
        (9.0, "import", 1),
    ]
    assert store.of(INFO).measured(SQUARE) == {}  # others' failures are tried here
    assert list(of_store(store)) == []  # and nothing was measured here
    assert store.of(INFO).peak() is None
    mine = timed(5.0)
    assert store.of(INFO).record(SQUARE, variant(item_m=8), mine)  # beats any claim


def test_the_profile_is_the_devices_limits_without_instructions(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "gpu.toml"
    path.write_text(read_selftest("x", content).profile())
    profile = profiles.load(str(path))
    shown = replace(LIMITED, instructions=frozenset(), declared_local_bytes=0)
    assert profile.limits() == shown
    assert profile.device == INFO.name
    assert "oclgen check" in profile.sources["local_bytes"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema is 2"),
        ({"host": "me"}, "unknown fields"),
        ({"limits": {}}, "limits: unknown fields"),
        ({"rates": {"gflops": -1.0, "gbytes": 1.0, "peaks": {}}}, "rates gflops"),
        ({"device": asdict(INFO) | {"compute_units": "8"}}, "device compute_units"),
        ({"findings": [{"step": "a", "what": "b", "verdict": "great", "found": ""}]}, "findings"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(
    content: bytes, change: dict[str, Any], said: str
) -> None:
    values = json.loads(content) | change
    with pytest.raises(ImportFileError, match=said):
        read_selftest("x", json.dumps(values).encode())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples": []}, "measurement 1: none with 0 samples"),
        ({"samples": [0.0]}, "measurements"),
        ({"invalidity": "compile"}, "measurement 1: compile with 2 samples"),
        ({"config": {"item_m": 2**40}}, "measurements"),
        ({"origin": ""}, "unknown fields"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(
    content: bytes, change: dict[str, Any], said: str
) -> None:
    values = json.loads(content)
    place = next(n for n, row in enumerate(values["measurements"]) if row["wins"])
    values["measurements"][place] |= change
    with pytest.raises(ImportFileError, match=said):
        read_selftest("x", json.dumps(values).encode())


def test_a_file_from_before_a_limit_is_read(content: bytes) -> None:
    values = json.loads(content)
    assert values["limits"].pop("declared_local_bytes") == 1 << 17
    assert read_selftest("x", json.dumps(values).encode()).limits.declared_local_bytes == 0


def test_one_schema_reads_what_another_version_wrote(tmp_path: Path) -> None:
    """A check without torch and rates is whole, too."""
    store = open_store(tmp_path / "empty.sqlite")
    few = facts(rates=None, torch=None)
    check = read_selftest("x", to_bytes(store, few, [], 1.0))
    assert (check.measured.peak, check.measured.rows) == (None, [])
    assert Limits.from_json(check.limits.to_json()) == LIMITED
