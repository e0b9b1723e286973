"""One measurement at a time on a device, over all processes of a machine.

It knows devices only by their descriptions; `oclgen.opencl.device` opens them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Protocol, TypeVar

from filelock import FileLock, Timeout

from oclgen.limits import DeviceInfo
from oclgen.opencl.loader import writable_folder

POLL = 0.2
"""Seconds between two looks at devices that are all taken."""


class _Described(Protocol):
    @property
    def info(self) -> DeviceInfo: ...


D = TypeVar("D", bound=_Described)


def kind_of(info: DeviceInfo) -> str:
    """Return a name that devices share whose measurements mean the same, driver included."""
    text = json.dumps(asdict(info), sort_keys=True)
    slug = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")[:32]
    return f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def locks(devices: Sequence[D]) -> list[tuple[D, Path]]:
    """Return each device with its lock file: a kind's devices are counted in their order.

    All runtimes of a processor share one, since they share its cores.
    """
    folder = writable_folder("devices")
    seen: Counter[str] = Counter()
    found = []
    for device in devices:
        kind = kind_of(device.info)
        name = "cpu" if device.info.kind == "cpu" else f"{kind}-{seen[kind]}"
        found.append((device, folder / f"{name}.lock"))
        seen[kind] += 1
    return found


class BusyError(RuntimeError):
    """Other processes measured on every device that would do, until the time was up."""


@contextmanager
def exclusive(
    candidates: Sequence[tuple[D, Path]],
    wait: Callable[[], None] = lambda: None,
    until: float = inf,
) -> Iterator[D]:
    """Hold the first of some devices that is free, for as long as the context lasts.

    A process that dies lets go of its device.

    Args:
        candidates: Devices with their lock files, as `locks` returns them.
        wait: Called once if all are taken.
        until: The value of `time.monotonic` from which on nothing is waited for.

    Raises:
        BusyError: all were taken until then.
    """
    waited = False
    while True:
        for device, path in candidates:
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                yield device
            finally:
                lock.release()
            return
        if not waited:
            wait()
            waited = True
        if time.monotonic() >= until:
            raise BusyError("another process measures on the device")
        time.sleep(min(POLL, max(until - time.monotonic(), 0.0)))
