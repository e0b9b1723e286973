"""The families' own tests on Oclgrind: no race, nothing out of bounds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OCLGRIND = shutil.which("oclgrind")
CHOSEN = {
    "test_conv_narrow.py": "variants or slices",
    "test_conv_device.py": "variants",
    "test_gemm_device.py": "sizes or any_valid or views",
    "test_winograd_device.py": "variants",
}
"""Test files, and which of their tests are small enough for a simulator."""


@pytest.mark.skipif(OCLGRIND is None, reason="oclgrind is not installed")
@pytest.mark.parametrize("name", CHOSEN)
def test_no_races_and_no_stray_accesses(tmp_path: Path, name: str) -> None:
    assert OCLGRIND
    log = tmp_path / "oclgrind.log"
    tests = Path(__file__).with_name(name)
    command = [OCLGRIND, "--data-races", "--log", str(log), sys.executable, "-m", "pytest"]
    options = ["-v", "-p", "no:cacheprovider", "-k", CHOSEN[name], str(tests)]
    environment = {name: v for name, v in os.environ.items() if name != "OCL_ICD_VENDORS"}
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "oclgrind" in done.stdout.lower(), "the simulator was not the device"
    assert log.read_text() == ""
