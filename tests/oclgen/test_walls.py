"""A kernel that reads behind a buffer does not pass: the tests of families rely on it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from oclgen.opencl.device import Device
from tests import home, walls

READS = """
import sys
from oclgen.opencl.device import select
from oclgen.plan import Launch, Plan, Scalar, buffer
from tests import walls
source = '''
__kernel void reads(__global const float *in, const long in_start, const int at,
                    __global float *out, const long out_start)
{
    out[0] = in[at] + 1.0f;
}
'''
index, at = map(int, sys.argv[1:])
device = select(index)
guarded = {role: walls.walled(device, role, 40) for role in ("in", "out")}
buffers = {role: one.region for role, one in guarded.items()}
args = (*buffer("in"), Scalar(at), *buffer("out"))
device.prepare(Plan((Launch(source, "reads", (1,), (1,), args),)), buffers).run()
print("went on")
"""


@pytest.mark.parametrize("at", [9, 10])
def test_a_read_behind_a_buffer_ends_the_process(device: Device, at: int) -> None:
    if device.limits.kind != "cpu" or device.info.runtime == walls.RUSTICL:
        pytest.skip("buffers of other devices have zones")
    command = [sys.executable, "-c", READS, str(device.index), str(at)]
    done = subprocess.run(command, cwd=home.ROOT, capture_output=True, text=True, check=False)
    went_on = "went on" in done.stdout and done.returncode == 0
    assert went_on == (at == 9), f"status {done.returncode}\n{done.stdout}{done.stderr}"
    assert went_on or done.returncode == -signal.SIGSEGV, done.stderr
