"""`oclgen check` on the devices here, and the way of its file: import, profile, service, folder."""

from __future__ import annotations

import getpass
import json
import platform
import re
from dataclasses import replace
from pathlib import Path

import pytest

from oclgen import profiles
from oclgen.opencl.device import Device
from search_spaces import selftest
from tests import samples
from tests.cli.command_runs import Run
from tuned_db import open_store
from tuned_db.files.selftest import read_selftest

SECONDS = 12 if samples.THOROUGH else 6
"""Enough for the device, its rates and a few families where other tests run beside. A check takes
all of it."""


def test_a_device_is_tested_and_its_file_is_taken_in_elsewhere(
    run: Run, device: Device, own_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "check.json", tmp_path / "profiles"
    steps = selftest.steps
    monkeypatch.setattr(  # the command itself takes no less than 10 s
        selftest, "steps", lambda index, store, _, told: steps(index, store, SECONDS, told)
    )
    arguments = ("--device", str(device.index), "--seconds", "12", "--output", str(path))
    result = run("check", *arguments)
    failed = "checks failed" in result.output
    assert result.exit_code == failed, result.output
    assert not own_database.exists()
    content = path.read_bytes()
    check = read_selftest("x", content)
    assert check.device == device.info
    # a runtime may tell of the memory that is free, which varies
    limits = replace(check.limits, global_bytes=device.limits.global_bytes)
    assert check.limits.global_bytes > 0
    assert limits == device.limits
    text = content.decode()
    names = (str(Path.home()), str(tmp_path), str(Path.cwd()), f"/{getpass.getuser()}/")
    assert [name for name in names if name in text] == []
    assert re.search(rf"\b{re.escape(platform.node())}\b", text) is None
    assert [f"{one.what}: {one.found}" for one in check.findings if one.verdict == "fail"] == []
    imported = run("db", "import", str(path), "--profile", str(folder))
    assert "0 of " in imported.output
    assert len(open_store(own_database).all_winners()) == len(check.measured.records())
    (profile,) = folder.iterdir()
    assert profiles.load(str(profile)).limits().local_bytes == device.limits.local_bytes


def test_no_device_is_a_sentence_and_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("check", "--device", "99", "--json")
    assert result.exit_code == 1
    assert "no file is written" in result.stderr
    assert [one["verdict"] for one in json.loads(result.stdout)][-1] == "fail"
    assert list(tmp_path.iterdir()) == []
