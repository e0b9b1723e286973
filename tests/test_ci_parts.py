"""Parts of `.ci/run` that run beside each other: what they print, and how one of them fails."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parents[1] / ".ci/run").read_text()
FUNCTIONS = ("part", "beside", "join_one", "join", "finish")
BEGIN = "\n".join((
    "set -euo pipefail",
    'scratch="$1"',
    "trap finish EXIT",
    "declare -A beside=()",
    'until_there() { until [ -e "$1" ]; do sleep 0.02; done; }',
))  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def function(name: str) -> str:
    found = re.search(rf"^{name}\(\) \{{.*?^\}}", SCRIPT, re.DOTALL | re.MULTILINE)
    assert found, name
    return found[0]


def run(tmp_path: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run lines behind the script's own functions; the scratch folder must be gone then."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        ["bash", "-c", "\n".join((BEGIN, *map(function, FUNCTIONS), *lines)), "run", str(scratch)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert not scratch.exists()
    return done


def test_what_a_part_prints_stays_together_and_none_is_lost(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "first() { echo 1; until_there second; echo 2; }",
        "second() { echo 3; touch second; }",
        "beside one first",
        "beside two second",
        "beside three echo 4",
        "part main echo 5",
        "join",
    )
    assert done.returncode == 0, done.stderr
    pieces = re.findall(r"^== (\w+)\n((?:\d\n)*)== \1: \d+ s\n", done.stdout, re.MULTILINE)
    assert len(done.stdout.splitlines()) == 13
    assert dict(pieces) == {"one": "1\n2\n", "two": "3\n", "three": "4\n", "main": "5\n"}


def test_no_more_than_two_run_beside(tmp_path: Path) -> None:
    names = "abcde"
    done = run(
        tmp_path,
        "busy() { echo begin >>log; sleep 0.2; echo end >>log; }",
        *(f"beside {name} busy" for name in names),
        "join",
    )
    assert done.returncode == 0, done.stderr
    steps = [1 if line == "begin" else -1 for line in (tmp_path / "log").read_text().split()]
    assert len(steps) == 2 * len(names)
    assert max(sum(steps[:count]) for count in range(len(steps))) == 2


@pytest.mark.parametrize("wait", ["join", "beside later touch later; beside latest touch latest"])
def test_a_part_that_fails_ends_the_run_and_those_beside_it(tmp_path: Path, wait: str) -> None:
    begin = time.monotonic()
    done = run(
        tmp_path,
        "fails() { echo why; until_there begun; false; echo not here; }",
        "slow() { touch begun; echo so far; sleep 50; touch ended; }",
        "beside bad fails",
        "beside slow slow",
        wait,
        "touch later",
    )
    assert time.monotonic() - begin < 50
    assert done.returncode == 1
    assert done.stderr == "ci: failed in bad\n"
    assert "why" in done.stdout and "so far" in done.stdout
    assert "not here" not in done.stdout
    assert not {"ended", "later", "latest"} & {path.name for path in tmp_path.iterdir()}


def test_what_follows_a_part_beside_ends_it_if_it_fails(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = run(
        tmp_path,
        "slow() { touch begun; sleep 50; }",
        "beside slow slow",
        "until_there begun",
        "part main bash -c 'exit 3'",
        "join",
    )
    assert time.monotonic() - begin < 50
    assert done.returncode == 3
    assert "== slow\n" in done.stdout


def test_the_script_waits_for_all_of_its_parts() -> None:
    lines = SCRIPT.splitlines()
    assert lines[-1] == "join"
    assert "trap finish EXIT" in lines
    installs = [lines.index(line) for line in lines if line.startswith('beside "more packages"')]
    assert installs and all(lines[at + 1] == "join" for at in installs), "packages are read by all"
