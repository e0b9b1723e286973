"""The Winograd families' own tests on Oclgrind: no race, nothing out of bounds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OCLGRIND = shutil.which("oclgrind")


@pytest.mark.skipif(OCLGRIND is None, reason="oclgrind is not installed")
def test_no_races_and_no_stray_accesses(tmp_path: Path) -> None:
    assert OCLGRIND
    log = tmp_path / "oclgrind.log"
    tests = Path(__file__).with_name("test_winograd_device.py")
    command = [OCLGRIND, "--data-races", "--log", str(log), sys.executable, "-m", "pytest"]
    options = ["-v", "-p", "no:cacheprovider", "-k", "variants", str(tests)]
    environment = {name: v for name, v in os.environ.items() if name != "OCL_ICD_VENDORS"}
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "oclgrind" in done.stdout.lower(), "the simulator was not the device"
    assert log.read_text() == ""
