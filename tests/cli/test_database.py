"""The commands that share, check, tidy and show a database."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from command_runs import Process, Run

from oclgen.families import config_to_json
from oclgen.families.gemm import gemm_register
from oclgen.measurement import Measurement
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem
from tuned_db import open_store
from tuned_db.shipped import shipped_records

SQUARE = GemmProblem(24, 16, 8)


@pytest.fixture
def filled(own_database: Path) -> Path:
    """A database with what the package ships, as if it had been measured here."""
    open_store(own_database).merge(shipped_records()[:20], origin="")
    return own_database


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A service in a process of its own: its address and a token."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")
    database = str(tmp_path / "served.sqlite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "oclgen_cli", "db"]
    token = subprocess.run(
        [*command, "token", "add", "alice", "--db", database],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    running = subprocess.Popen([*command, "serve", "--port", str(port), "--db", database])
    url = f"http://127.0.0.1:{port}/"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            httpx.get(url)
            break
        except httpx.TransportError:
            time.sleep(0.1)
    yield url, token
    running.send_signal(signal.SIGINT)
    assert running.wait(30) in (0, 1, 130, -signal.SIGINT)


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
    token = run("db", "token", "add", "bob").output.strip()
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


def test_devices_and_doctor_speak_json(
    run: Run, any_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = json.loads(run("devices", "--json").output)
    assert [one["index"] for one in listed] == list(range(len(listed)))
    monkeypatch.setattr("oclgen_cli.doctor._torch", tuple)  # its shim takes long to compile
    found = json.loads(run("doctor", "--json").output)
    assert {one["verdict"] for one in found} <= {"ok", "warn", "fail"}
    assert any(one["what"].startswith("device") for one in found)


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


def test_a_claim_is_verified_on_the_device(run: Run, device: Device, own_database: Path) -> None:
    store, text = open_store(own_database), config_to_json(gemm_register.DEFAULT)
    mine = store.of(device.info)
    mine.record(SQUARE, gemm_register.NAME, gemm_register.DEFAULT, Measurement((9.0,), error=0.0))
    (measured,) = store.all_winners()
    claimed = str(own_database.parent / "claimed.sqlite")
    open_store(claimed).merge([measured])
    index = str(device.index)
    assert "unverified (import)" in run("db", "list", "--db", claimed, "--unverified").output
    result = run("db", "verify", "--device", index, "--db", claimed)
    assert result.exit_code == 0, result.output
    assert "claimed 9 ms" in result.output
    assert "1 verified, 0 failed" in result.output
    (checked,) = open_store(claimed).all_winners()
    assert (checked.verified, checked.config) == (True, text)
    assert "0 unverified records" in run("db", "verify", "--device", index, "--db", claimed).output


def test_two_drivers_are_compared(run: Run, filled: Path) -> None:
    assert run("compare", str(filled)).exit_code == 2
    output = run("compare", str(filled), "--left-device", "no such", "--right-device", "").output
    assert "0 problems on both sides" in output
    assert "20 only right" in output
    output = run("compare", str(filled), str(filled)).output
    assert "geometric mean 1.000x" in output
    assert "no.jsonl" in run("compare", str(filled), "no.jsonl").stderr


def test_a_report_is_written(run: Run, filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    output = run("report", str(folder)).output
    assert "plots as PNG" in output
    text = (folder / "report.html").read_text()
    assert shipped_records()[0].problem in text
    assert str(tmp_path) not in text
    assert (folder / "peak_1.png").read_bytes().startswith(b"\x89PNG")
    assert "cannot write" in run("report", "/proc/nothing").stderr
