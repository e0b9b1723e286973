"""A device is measured on by one process at a time, and is free again when that process dies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from oclgen.limits import DeviceInfo
from oclgen.opencl import exclusive as module
from oclgen.opencl.exclusive import BusyError, exclusive, kind_of, locks

GPU = DeviceInfo("Some GPU (X)", "vendor", "gpu", "sm_1", "runtime", "1", "driver 1", 132)
CPU = replace(GPU, kind="cpu")
HOLD = """
import sys
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Device:
    info: DeviceInfo
    index: int = 0


def test_kinds_read_well_and_tell_drivers_apart() -> None:
    assert kind_of(GPU).startswith("some-gpu-x-")
    assert kind_of(GPU) != kind_of(replace(GPU, driver_version="driver 2"))


def test_equal_devices_have_locks_of_their_own_but_runtimes_of_a_processor_share_one() -> None:
    twins = locks([Device(GPU, 0), Device(GPU, 1)])
    assert len({path for _, path in twins}) == 2
    runtimes = locks([Device(CPU), Device(replace(CPU, runtime="other"))])
    assert len({path for _, path in runtimes}) == 1


def test_a_free_device_is_taken_and_a_dead_holder_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", 0.01)
    first, second = tmp_path / "a" / "1.lock", tmp_path / "a" / "2.lock"
    first.parent.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with exclusive([(Device(GPU, 0), first), (Device(GPU, 1), second)]) as device:
        assert device.index == 1
    with pytest.raises(BusyError), exclusive([(Device(GPU, 0), first)], until=0.0):
        pass
    waits: list[int] = []

    def wait() -> None:
        waits.append(1)
        holder.kill()

    with exclusive([(Device(GPU, 0), first)], wait) as device:
        assert device.index == 0
    assert waits == [1]
    holder.wait()
    holder.stdout.close()
    assert holder.stdin is not None
    holder.stdin.close()
