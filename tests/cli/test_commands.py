"""The commands do what they say, on every OpenCL device where they need one."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import optuna
import pytest

from oclgen.keys import parse_problem
from oclgen.opencl.device import Device
from oclgen_cli.main import main
from tests import torch_processes
from tests.cli.command_runs import Process, Run

GEMM = ["--gemm", "24x16x8"]
HANGS = 900.0
"""Seconds after which a process is taken to hang; a loaded machine needs minutes."""


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Device], Path]:
    """A database in which one product was tuned on a device, for all tests that need one."""

    @cache
    def tune(device: Device) -> Path:
        path = tmp_path_factory.mktemp("tuned") / "tuned.sqlite"
        trials = ["--trials", "2", "--family", "gemm_register", "--db", str(path)]
        main(["tune", "--device", str(device.index), *GEMM, *trials], standalone_mode=False)
        return path

    return tune


@pytest.fixture
def tuned(tuned_once: Callable[[Device], Path], device: Device, own_database: Path) -> None:
    """The test's own database is a copy of it."""
    opened = map(sqlite3.connect, (tuned_once(device), own_database))
    with closing(next(opened)) as known, closing(next(opened)) as own:
        known.backup(own)  # a copy of the file would lack what SQLite's log still holds


def test_help_names_every_command(run: Run) -> None:
    text = run("--help").output
    for command in ("devices", "doctor", "tune", "show-source", "db"):
        assert f"  {command} " in text


def test_source_needs_no_opencl(process: Process) -> None:
    done = process("show-source", "64x32x16:fp16:nt", OCLGEN_RUNTIMES="none")
    assert done.returncode == 0
    assert "__kernel" in done.stdout
    assert "// gemm:64x32x16:fp16:nt:b1:-:-:none" in done.stdout
    assert "global size" in done.stdout


def test_source_follows_family_and_config(run: Run) -> None:
    base = run("show-source", "64x32x16", "--family", "gemm_register")
    other = run("show-source", "64x32x16", "--family", "gemm_register", "--config", '{"item_m": 2}')
    assert base.exit_code == other.exit_code == 0
    assert '"item_m":2' in other.output
    assert base.output != other.output


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("8x9x10", "gemm:8x9x10:fp32:nn:b1:-:-:none"),
        ("gemm:8x9x10:fp32:nn:b1:-:-:none", "gemm:8x9x10:fp32:nn:b1:-:-:none"),
        ("1,2,8,8,4,3,3,1,1:bwd_data", "conv:1,2,8,8,4,3,3:s1,1:p1,1:d1,1:g1:fp32:bwd_data:-:none"),
    ],
)
def test_problems_are_read_in_short_and_in_full(text: str, key: str) -> None:
    assert parse_problem(text).key() == key


def test_devices_are_listed(run: Run, device: Device) -> None:
    text = run("devices").output
    assert device.name[:12] in text
    assert device.info.driver_version[:12] in text


def test_a_device_is_found_by_its_name(
    run: Run, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCLGEN_DB")  # what the variable names has to be there
    result = run("show-source", "8x8x8", "--device", f"{device.name} {device.info.runtime}")
    assert result.exit_code == 0, result.stderr


def test_an_unknown_device_lists_what_there_is(run: Run, device: Device) -> None:
    for unknown in ("99", "no such thing"):
        result = run("show-source", "8x8x8", "--device", unknown)
        assert result.exit_code == 1
        assert device.name in result.stderr


def test_tuning_is_kept_and_not_repeated(run: Run, device: Device) -> None:
    arguments = ["tune", "--device", str(device.index), *GEMM, "--trials", "3"]
    first = run(*arguments)
    assert first.exit_code == 0, first.stderr
    assert "3 timed" in first.output
    assert "GFLOP/s" in first.output
    second = run(*arguments)
    assert second.exit_code == 0
    assert "already done" in second.output
    assert "timed" not in second.output
    assert "24x16x8" in run("db", "list").output
    assert device.info.driver_version[:12] in run("db", "stats").output


def test_one_family_alone_is_tried(run: Run, device: Device) -> None:
    arguments = ["tune", "--device", str(device.index), *GEMM, "--trials", "2"]
    result = run(*arguments, "--family", "gemm_register")
    assert result.exit_code == 0, result.stderr
    assert "gemm_register: " in result.output


@pytest.mark.usefixtures("tuned")
def test_what_dispatch_runs_can_be_shown(run: Run, device: Device) -> None:
    index = str(device.index)
    assert "// gemm_register {" in run("show-source", "24x16x8", "--device", index).output


@pytest.mark.usefixtures("tuned")
def test_what_may_serve_is_listed_in_the_order_of_dispatch(run: Run, device: Device) -> None:
    index = str(device.index)
    listed = json.loads(run("explain", "24x16x8", "--device", index, "--json").output)
    tuned, *others = listed
    assert (tuned["rung"], tuned["family"]) == ("exact", "gemm_register")
    assert tuned["measured_ms"] > 0
    assert tuned["record_of"] == parse_problem("24x16x8").key()
    assert others[-1]["measured_ms"] is None
    keys = [(one["family"], json.dumps(one["config"])) for one in listed]
    assert len(keys) == len(set(keys))
    table = run("explain", "24x16x8", "--device", index, "--count", "1").output
    assert "predicted ms" in table and "gemm_register" in table


@pytest.mark.usefixtures("tuned")
def test_export_import_export_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    one, two, other = tmp_path / "1.jsonl", tmp_path / "2.jsonl", str(tmp_path / "other.sqlite")
    assert run("db", "export", str(one)).exit_code == 0
    assert "1 records taken into" in run("db", "import", str(one), "--db", other).output
    assert "1 were known or not faster" in run("db", "import", str(one), "--db", other).output
    assert run("db", "export", str(two), "--db", other).exit_code == 0
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().count(b"\n") == 2


@pytest.mark.usefixtures("tuned")
def test_a_bad_line_changes_nothing(run: Run, tmp_path: Path) -> None:
    file, other = tmp_path / "1.jsonl", str(tmp_path / "other.sqlite")
    run("db", "export", str(file))
    file.write_text(file.read_text() + "{}\n")
    result = run("db", "import", str(file), "--db", other)
    assert result.exit_code == 1
    assert "line 3: " in result.stderr
    assert not Path(other).exists()


@pytest.mark.timeout(3 * HANGS)
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
def test_interrupting_keeps_what_is_done(
    run: Run, device: Device, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "oclgen_cli", "tune", "--device", str(device.index)]
    tuning = subprocess.Popen(
        [*command, "--gemm", "96x96x96", "--trials", "5000", "--time-budget", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ),
    )
    try:
        deadline = time.monotonic() + HANGS
        while ": 1 winners" not in run("db", "stats").output and time.monotonic() < deadline:
            time.sleep(0.2)
        tuning.send_signal(number)
        output, _ = tuning.communicate(timeout=HANGS)
    finally:
        tuning.kill()  # it would tune beside all tests to come
    assert tuning.returncode == code, output
    assert "interrupted" in output
    assert "GFLOP/s count" in output  # the table
    assert "Traceback" not in output
    assert ": 1 winners" in run("db", "stats").output


def test_out_of_time_is_not_reached_and_says_what_would_be_needed(run: Run, device: Device) -> None:
    arguments = ["tune", "--device", str(device.index), *GEMM, "--time-budget", "0.001"]
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "not reached" in result.output
    assert "The time budget ended before 1 of 1 problems had a trial: some " in result.output


def test_the_time_of_a_process_counts_from_its_beginning(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("search_spaces.timing.process_began", lambda: time.monotonic() - 100)
    arguments = ["tune", "--device", str(device.index), *GEMM, "--time-budget", "100"]
    main(arguments, standalone_mode=False)
    assert "not reached" in capsys.readouterr().out


def test_doctor_says_what_works(process: Process, device: Device) -> None:
    done = process("doctor")
    assert done.returncode == 0, done.stdout
    assert "builds and runs kernels" in done.stdout
    assert device.name[:12] in done.stdout
    assert "database file" in done.stdout


def test_a_recording_is_tuned_by_its_calls(run: Run, device: Device, tmp_path: Path) -> None:
    file = tmp_path / "untuned.jsonl"
    file.write_text('{"problem": "gemm:24x16x8:fp32:nn:b1:-:-:none", "calls": 7}\n')
    arguments = ["tune", "--device", str(device.index), "--trials", "2", "--recorded", str(file)]
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "2 timed" in result.output
    assert "already done" in run(*arguments).output
    both = run(*arguments, *GEMM)
    assert both.exit_code == 2
    assert "not several of them" in both.stderr


def test_a_model_is_tuned_and_its_gain_is_told(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(
        "import torch\ndef make_model():\n    return torch.nn.Linear(24, 16), torch.ones(8, 24)\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["tune", "--device", str(device.index), "--trials", "2", "--model"]
    result = torch_processes.run_module("oclgen_cli", *arguments, "mine:make_model", "--train")
    assert result.returncode == 0, result.stderr
    assert "gemm:8x16x24" in result.stdout
    assert "gemm:16x24x8" in result.stdout  # the weights' gradient
    told = " ".join(result.stdout.split())
    assert ("ms after, in 5 turns" in told) != ("nothing is gained" in told)
    missing = torch_processes.run_module("oclgen_cli", *arguments, "mine:no_model")
    assert missing.returncode == 1
    assert "mine:no_model cannot be had" in missing.stderr


def test_searches_can_be_kept_as_studies(run: Run, device: Device, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.sqlite'}"
    arguments = ["tune", "--device", str(device.index), "--gemm", "160x160x160", "--study", url]
    assert run(*arguments, "--trials", "3", "--family", "gemm_register").exit_code == 0
    (study,) = optuna.get_all_study_summaries(url)
    assert study.study_name.endswith("gemm:160x160x160:fp32:nn:b1:-:-:none gemm_register warm")
    assert study.n_trials == 3
