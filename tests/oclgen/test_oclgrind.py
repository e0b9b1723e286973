"""Every family's kernels stay inside their buffers and do not race: oclgrind watches them run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oclgen.families import FAMILIES
from tests import home, samples

RUNTIME = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
"""Debian's and Ubuntu's place for oclgrind as an OpenCL runtime of its own."""
OWN_TESTS = {
    "test_conv_narrow.py": "variants or slices",
    "test_conv_device.py": "variants",
    "test_gemm_device.py": "sizes or any_valid or views",
    "test_planes.py": "lie or have or share or be",
    "test_winograd_device.py": "variants",
}
"""Test files of families, and which of their tests are small enough for a simulator."""

pytestmark = pytest.mark.skipif(
    not RUNTIME.exists(), reason="oclgrind is not installed (Debian, Ubuntu: apt install oclgrind)"
)

CASES = ("-m", "tests.oclgen.oclgrind_cases")
PROCESSES = 2
"""One for each worker of a run, since to start one takes 1.3 s of a core."""

RACE = """
from oclgen.opencl.device import select
from oclgen.plan import Launch, Plan, buffer
source = '''
__kernel void race(__global float *out, const long offset)
{
    __local float tile[8];
    tile[get_local_id(0)] = 1.0f;
    out[offset + get_local_id(0)] = tile[7 - get_local_id(0)];
}
'''
device = select("oclgrind")
plan = Plan((Launch(source, "race", (8,), (8,), buffer("out")),))
device.prepare(plan, {"out": device.empty(32)}).run()
"""


def under_oclgrind(tmp_path: Path, *arguments: str, **more: str) -> str:
    """Run Python with oclgrind as the only runtime; return all that was printed."""
    (tmp_path / "oclgrind.icd").write_text(f"{RUNTIME}\n")
    watched = {
        "OCL_ICD_VENDORS": str(tmp_path),
        "OCLGEN_RUNTIMES": "oclgrind",
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_MAX_ERRORS": "20",
        "PYOPENCL_NO_CACHE": "1",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=home.ROOT,
        env={**os.environ, **watched, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def test_oclgrind_sees_a_race(tmp_path: Path) -> None:
    assert "data race" in under_oclgrind(tmp_path, "-c", RACE)


@pytest.mark.parametrize("first", range(PROCESSES))
def test_kernels_neither_race_nor_leave_their_buffers(tmp_path: Path, first: int) -> None:
    families = list(FAMILIES)[first::PROCESSES]
    lines = [line for line in under_oclgrind(tmp_path, *CASES, *families).splitlines() if line]
    reports = [line for line in lines if not line.startswith(("case ", "done "))]
    begin = next((n for n, line in enumerate(lines) if line in reports), 0)
    assert not reports, "\n".join(lines[max(begin - 1, 0) : begin + 40])
    done = [line.split()[1:] for line in lines if line.startswith("done ")]
    assert [name for name, _ in done] == families
    assert all(int(count) >= 1 for _, count in done), done


@pytest.mark.skipif(not samples.THOROUGH, reason="simulated for minutes: THOROUGH=1 runs it")
@pytest.mark.parametrize("name", OWN_TESTS)
def test_the_families_own_tests_neither_race_nor_stray(tmp_path: Path, name: str) -> None:
    log = tmp_path / "oclgrind.log"
    file = str(Path(__file__).with_name(name))
    options = ("-v", "-p", "no:cacheprovider", "-k", OWN_TESTS[name], file)
    printed = under_oclgrind(tmp_path, "-m", "pytest", *options, OCLGRIND_LOG=str(log))
    assert " passed" in printed.splitlines()[-1], printed[-3000:]
    assert "failed" not in printed.splitlines()[-1], printed[-3000:]
    assert "oclgrind" in printed.lower(), "the simulator was not the device"
    assert log.read_text() == ""
