"""The commands that share, check, tidy and show a database."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from oclgen.families.gemm import gemm_register
from oclgen.limits import DeviceInfo
from oclgen.measurement import Cache, Measurement
from oclgen.opencl import runtimes
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tests.cli.command_runs import Process, Run
from tuned_db import open_store, write_records
from tuned_db.database.models import MeasurementRow
from tuned_db.files.table import read
from tuned_db.records.shipped import shipped_records

SQUARE = GemmProblem(24, 16, 8)


@pytest.fixture
def known_runtimes(any_device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let doctor neither ask the runtimes anew nor import the torch device.

    Both take seconds; `test_doctor_says_what_works` runs the whole of it.
    """
    known = runtimes.prepare()
    monkeypatch.setattr("oclgen_cli.doctor.examine", lambda fresh: known)
    monkeypatch.setattr("oclgen_cli.doctor._torch", tuple)


@pytest.fixture
def filled(own_database: Path) -> Path:
    """A database with what the package ships, as if it had been measured here."""
    open_store(own_database).merge(shipped_records()[:20], origin="")
    return own_database


def test_records_travel_through_a_service(
    run: Run, service: tuple[str, str], filled: Path, tmp_path: Path
) -> None:
    url, token = service
    refused = run("db", "push", url)
    assert (refused.exit_code, "needs a token" in refused.stderr) == (2, True)
    assert "refuses with 401" in run("db", "push", url, "--token", "x").stderr
    assert "20 are winners there" in run("db", "push", url, "--token", token).output
    other = str(tmp_path / "other.sqlite")
    assert "20 records of 127.0.0.1 taken into" in run("db", "pull", url, "--db", other).output
    listed = json.loads(run("db", "list", "--db", other, "--unverified", "--json").output)
    assert {one["origin"] for one in listed} == {"pull from 127.0.0.1"}
    assert "0 records of" in run("db", "push", url, "--token", token, "--db", other).output


def test_tokens_are_listed_and_revoked(run: Run) -> None:
    token = run("db", "token", "add", "bob", "--create").output.strip()
    assert re.fullmatch(r"oclgen_[\w-]{43}", token)
    listed = run("db", "token", "list").output
    assert "bob" in listed
    assert token not in listed
    assert "bob is no longer valid" in run("db", "token", "revoke", "bob").output
    assert "'bob' has no token" in run("db", "token", "revoke", "bob").stderr


def test_a_service_that_is_not_there_is_a_sentence(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuned_db.service.client.ATTEMPTS", 1)
    result = run("db", "pull", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "127.0.0.1 cannot be reached" in result.stderr


def test_json_is_for_programs(run: Run, filled: Path) -> None:
    listed = json.loads(run("db", "list", "--limit", "3", "--json").output)
    assert len(listed) == 3
    assert listed[0].keys() >= {"problem", "family", "config", "ms", "verified", "device"}
    stats = json.loads(run("db", "stats", "--json").output)
    assert (stats["winners"], sum(one["winners"] for one in stats["devices"])) == (20, 20)
    compared = json.loads(run("compare", str(filled), str(filled), "--json").output)
    assert compared["speedup"] == 1.0


@pytest.mark.usefixtures("known_runtimes")
def test_devices_and_doctor_speak_json(run: Run) -> None:
    listed = json.loads(run("devices", "--json").output)
    assert [one["index"] for one in listed] == list(range(len(listed)))
    found = json.loads(run("doctor", "--json").output)
    assert {one["verdict"] for one in found} <= {"ok", "warn", "fail"}
    assert any(one["what"].startswith("device") for one in found)


@pytest.mark.usefixtures("known_runtimes")
def test_reading_makes_no_database(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "folder" / "mistyped.sqlite"
    findings = json.loads(run("doctor", "--json", "--db", str(missing)).output)
    (found,) = [one for one in findings if one["what"] == "database"]
    assert (found["verdict"], str(missing) in found["found"]) == ("fail", True)
    refused = run("show-source", SQUARE.key(), "--device", "0", "--db", str(missing))
    assert (refused.exit_code, str(missing) in refused.stderr) == (1, True)
    assert not missing.parent.exists()


@pytest.mark.usefixtures("known_runtimes")
def test_a_user_without_a_database_gets_none_by_reading(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCLGEN_DB")
    monkeypatch.setattr("tuned_db.database.place.user_data_path", lambda _: tmp_path / "data")
    findings = json.loads(run("doctor", "--json").output)
    (found,) = [one for one in findings if one["what"] == "database"]
    assert (found["verdict"], found["found"][:8]) == ("ok", "none yet")
    assert run("show-source", SQUARE.key(), "--device", "0").exit_code == 0
    assert not (tmp_path / "data").exists()


def test_a_tuning_speaks_json_and_notes_the_peak(process: Process, any_device: None) -> None:
    done = process("tune", "--gemm", "24x16x8", "--trials", "1", "--json")
    (result,) = json.loads(done.stdout)
    assert (result["problem"], result["status"]) == (SQUARE.key(), "tuned")
    (kept,) = open_store(os.environ["OCLGEN_DB"]).all_winners()
    assert kept.peak is not None
    assert kept.peak[0] > 1.0


def test_databases_are_merged_and_pruned(run: Run, filled: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "other.sqlite")
    merged = run("db", "merge", str(filled), "--db", other).output
    assert "20 measurements of" in merged
    assert "20 of them new winners" in merged
    assert "20 were known" in run("db", "merge", str(filled), "--db", other).output
    assert (
        "20 measurements would go"
        in run("db", "prune", "--unverified", "--dry-run", "--db", other).output
    )
    assert "20 measurements dropped" in run("db", "prune", "--unverified", "--db", other).output
    assert ": 0 winners" in run("db", "stats", "--db", other).output
    assert run("db", "prune").exit_code == 2
    assert "there is no database file" in run("db", "merge", str(tmp_path / "no")).stderr


def test_what_is_generated_differently_today_is_pruned(run: Run, own_database: Path) -> None:
    """And what is of unknown kernels, as records of before digests are."""
    store = open_store(own_database)
    older = [replace(one, digest=None, generator="1") for one in shipped_records()[:3]]
    store.merge([*older, *shipped_records()[-5:]])
    would = run("db", "prune", "--outdated", "--dry-run").output
    assert would.startswith("3 measurements would go")
    assert len(store.all_winners()) == 8
    assert run("db", "prune", "--outdated").output.startswith("3 measurements dropped")
    with store.database.writing() as connection:
        connection.execute(update(MeasurementRow).values(digest="0" * 16))
    variant = Variant(gemm_register.NAME, gemm_register.DEFAULT)
    store.of(INFO).record(SQUARE, variant, Measurement((9.0,)))
    assert run("db", "prune", "--outdated").output.startswith("5 measurements dropped")
    assert [one.problem for one in store.all_winners()] == [SQUARE.key()]


def test_an_import_says_what_nothing_reads_today(run: Run, own_database: Path) -> None:
    """Under one number of the generator families come and go: no reason to refuse a file."""
    known = shipped_records()[-1]
    gone = replace(known, family="depthwise_of_old", problem=SQUARE.key())
    file = own_database.parent / "records.jsonl"
    with file.open("wb") as stream:
        write_records([known, gone], stream)
    output = run("db", "import", str(file)).output
    assert "2 records taken into" in output
    assert "1 of them serve nothing today, the first since family 'depthwise_of_old' is" in output
    with file.open("wb") as stream:
        write_records([known], stream)
    assert "today" not in run("db", "import", str(file)).output


def test_a_claim_is_verified_on_the_device(run: Run, device: Device, own_database: Path) -> None:
    store = open_store(own_database)
    variant = Variant(gemm_register.NAME, gemm_register.DEFAULT)
    mine = store.of(device.info)
    mine.record(SQUARE, variant, Measurement((9.0,), error=0.0))
    (measured,) = store.all_winners()
    claimed = str(own_database.parent / "claimed.sqlite")
    open_store(claimed).merge([measured])
    index = str(device.index)
    assert "unverified (import)" in run("db", "list", "--db", claimed, "--unverified").output
    result = run("db", "verify", "--device", index, "--db", claimed)
    assert result.exit_code == 0, result.output
    assert "claimed 9 ms" in result.output
    assert "1 verified, 0 slower than claimed, 0 failed" in result.output
    (checked,) = open_store(claimed).all_winners()
    assert (checked.verified, checked.config) == (True, variant.to_json())
    assert "0 unverified records" in run("db", "verify", "--device", index, "--db", claimed).output


def test_a_claim_that_is_slower_here_is_a_verdict_and_may_cost_its_origin_its_trust(
    run: Run, device: Device, own_database: Path
) -> None:
    store = open_store(own_database)
    variant = Variant(gemm_register.NAME, gemm_register.DEFAULT)
    store.of(device.info).record(SQUARE, variant, Measurement((1e-6,), error=0.0))
    claimed = own_database.parent / "claimed.sqlite"
    open_store(claimed).merge(store.all_winners(), origin="push by mallory")
    arguments = ("--device", str(device.index), "--db", str(claimed), "--quarantine")
    result = run("db", "verify", *arguments)
    assert result.exit_code == 3, result.output
    assert "slower: " in result.output
    assert "0 verified, 1 slower than claimed, 0 failed" in result.output
    assert "compared: " in result.output  # with what would serve without it
    assert "push by mallory is in quarantine" in result.output
    assert {one.verified for one in open_store(claimed).all_winners()} == {True}


INFO = DeviceInfo(
    name="GPU [/red] [rev a1] X :gun:",
    vendor="V",
    kind="gpu",
    architecture="a",
    runtime="R",
    runtime_version="1",
    driver_version="[link=http://evil]x[/link]",
    compute_units=1,
)


def keep(where: Path, info: DeviceInfo, ms: float, cache: Cache = "warm") -> None:
    """Keep a time of the square."""
    results = open_store(where).of(info, cache)
    results.record(SQUARE, Variant(gemm_register.NAME, gemm_register.DEFAULT), Measurement((ms,)))


def test_names_are_printed_whole_and_are_no_markup(run: Run, own_database: Path) -> None:
    keep(own_database, INFO, 1.0)
    listed = run("db", "list")
    assert (listed.exit_code, INFO.name[:20] in listed.output) == (0, True)
    counted = run("db", "stats")
    assert (counted.exit_code, INFO.name in counted.output) == (0, True)
    assert INFO.driver_version in counted.output


READERS = [
    ("db", "list"),
    ("db", "stats"),
    ("db", "export", "OUT.jsonl"),
    ("report", "OUT"),
    ("db", "verify"),
    ("db", "push", "http://127.0.0.1:9", "--token", "x"),
    ("db", "serve"),
    ("db", "token", "add", "bob"),
    ("db", "token", "list"),
    ("db", "token", "revoke", "bob"),
    ("db", "prune", "--failures"),
]


@pytest.mark.parametrize("command", READERS, ids=lambda command: "-".join(command[:3]))
def test_a_mistyped_database_makes_nothing_and_is_said(
    run: Run, any_device: None, tmp_path: Path, command: tuple[str, ...]
) -> None:
    where, out = tmp_path / "no folder" / "typing error.sqlite", str(tmp_path / "OUT")
    arguments = [one.replace("OUT", out) for one in command]
    result = run(*arguments, "--db", str(where))
    assert result.exit_code == 1
    assert f"there is no database file {where}" in result.stderr
    assert "check --db" in result.stderr
    assert list(tmp_path.iterdir()) == []


UNREADABLE = {
    "records": "{",
    "a check file": '{"format": "oclgen check"}',
    "measurements": '{"format":"oclgen measurements","schema":1}\n{}',
}


@pytest.mark.parametrize("what", [*UNREADABLE, "a folder", "a service"])
def test_what_cannot_be_read_makes_no_database(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("tuned_db.service.client.ATTEMPTS", 1)
    given, where = tmp_path / "given", tmp_path / "folder" / "new.sqlite"
    if what in UNREADABLE:
        given.write_text(UNREADABLE[what])
    else:
        given.mkdir()  # a data set without its manifest
    command = ("pull", "http://127.0.0.1:9") if what == "a service" else ("import", str(given))
    assert run("db", *command, "--db", str(where)).exit_code == 1
    assert not where.parent.exists()


def test_two_drivers_are_compared(run: Run, filled: Path) -> None:
    assert run("compare", str(filled)).exit_code == 2
    result = run("compare", str(filled), "--left-device", "no such")
    assert result.exit_code == 1
    assert "no device of" in result.stderr
    output = run("compare", str(filled), str(filled)).output
    assert "geometric mean 1.000x" in output
    assert "no.jsonl" in run("compare", str(filled), "no.jsonl").stderr


def test_like_is_compared_with_like(run: Run, tmp_path: Path) -> None:
    """A time of a CPU and one of a GPU, or a cold and a warm one, are no pair."""
    cpu, gpu = replace(INFO, name="a CPU", kind="cpu"), replace(INFO, name="a GPU")
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    keep(one, cpu, 0.8)
    keep(one, gpu, 4.0, "cold")
    keep(other, gpu, 0.2)
    assert "0 problems on both sides" in run("compare", str(one), str(other)).output
    keep(other, gpu, 2.0, "cold")
    compared = json.loads(run("compare", str(one), str(other), "--json").output)
    (pair,) = compared["pairs"]
    assert (pair["cache"], pair["speedup"]) == ("cold", 2.0)
    assert pair["left_device"]["name"] == pair["right_device"]["name"] == "a GPU"
    both = ("compare", str(one), str(other), "--left-device", "CPU", "--right-device", "GPU")
    output = run(*both).output
    assert "4.00x" in output
    assert "a CPU (R) and" in output
    refused = run("compare", str(one), str(other), "--right-device", "GPU")
    assert (refused.exit_code, "fits 2: a CPU (R), a GPU (R)" in refused.stderr) == (2, True)


def test_a_report_is_written(run: Run, filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    output = run("report", str(folder)).output
    assert "plots as PNG" in output
    text = (folder / "report.html").read_text()
    assert shipped_records()[0].problem in text
    assert str(tmp_path) not in text
    assert (folder / "roofline_fp32_1.png").read_bytes().startswith(b"\x89PNG")
    assert "cannot write" in run("report", "/proc/nothing").stderr


def test_measurements_are_written_with_what_describes_the_device(
    run: Run, device: Device, tmp_path: Path
) -> None:
    index, path = str(device.index), tmp_path / "table.jsonl.gz"
    run("tune", "--device", index, "--gemm", "24x16x8", "--trials", "2")
    assert "measurements of" in run("db", "measurements", str(path)).output
    heads, rows = zip(*read(path), strict=True)
    assert {head.limits for head in heads} == {device.limits}
    assert len(rows) >= 2
