"""`.ci/parts`: parts run after and beside each other; one that fails is named and ends the run."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

PARTS = Path(__file__).parents[1] / ".ci/parts"
HEAD = f"""
set -euo pipefail
scratch="$1"
. {PARTS}
trap finish EXIT
wait_for() {{ until [ -e "$1" ]; do sleep 0.05; done; }}
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def run(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        ["bash", "-c", HEAD + script, "run", str(scratch)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert not scratch.exists()
    return done


def test_what_runs_beside_is_printed_behind_the_others_and_in_its_order(tmp_path: Path) -> None:
    script = """
    checks() { part one echo first; touch begun; wait_for main; part two echo second; }
    beside checks
    wait_for begun
    part main touch main
    join
    part three echo third
    """
    done = run(tmp_path, script)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.endswith(" s")]
    assert lines == ["== main", "== one", "first", "== two", "second", "== three", "third"]


@pytest.mark.parametrize("place", ["during the last part", "before a part"])
def test_a_part_beside_that_fails_fails_the_run(tmp_path: Path, place: str) -> None:
    is_last = place == "during the last part"
    script = f"""
    fails() {{ echo why; false; echo not here; }}
    checks() {{ {"wait_for main" if is_last else "true"}; part bad fails; part no echo reached; }}
    beside checks
    {"" if is_last else "wait_for $scratch/beside.failed"}
    part main touch main
    join
    part later echo reached
    """
    done = run(tmp_path, script)
    assert done.returncode == 1
    assert "why" in done.stdout
    assert "reached" not in done.stdout
    assert "not here" not in done.stdout
    assert (tmp_path / "main").exists() == is_last
    assert done.stderr == "ci: failed in bad\n"


def test_a_part_that_fails_ends_what_runs_beside(tmp_path: Path) -> None:
    script = """
    checks() { part good true; part slow bash -c 'touch begun; sleep 50; touch ended'; }
    beside checks
    wait_for begun
    part main bash -c 'exit 3'
    join
    """
    begin = time.monotonic()
    done = run(tmp_path, script)
    assert time.monotonic() - begin < 50
    assert done.returncode == 3
    assert "== slow" in done.stdout
    assert done.stderr == "ci: failed in main\n"
    assert not (tmp_path / "ended").exists()
