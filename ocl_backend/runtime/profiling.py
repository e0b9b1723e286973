"""`torch.ocl.profile`: a table of kernels and copies by the time they took on their device.

Operators, shapes and traces are torch.profiler's, which shows the same kernels.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from types import TracebackType
from typing import NamedTuple, Self, TextIO

import torch

from ocl_backend.runtime import launch, shim

_open = 0
"""Contexts of `profile` that are entered and not left."""


def is_recording() -> bool:
    """Say whether a profile of this module, or one of torch's, sees every command."""
    return _open > 0 or torch.autograd.profiler._is_profiler_enabled


class Command(NamedTuple):
    """A kernel or copy that ran: times in nanoseconds since 1970, `bytes` moved by a copy."""

    name: str
    device: int
    start: int
    end: int
    bytes: int

    @property
    def milliseconds(self) -> float:
        """How long it ran."""
        return (self.end - self.start) * 1e-6


class profile:  # noqa: N801  (a context, named as torch.profiler's)
    """Record every command inside the context and print the table of them at its end.

        with torch.ocl.profile() as seen:
            model(images)
        seen.commands[0].milliseconds

    Times are the device's own; `file` is where the table goes, None keeps it for `table()`.
    """

    def __init__(self, file: TextIO | None = sys.stdout, rows: int = 20) -> None:
        self.commands: list[Command] = []
        self._file = file
        self._rows = rows

    def __enter__(self) -> Self:
        """Begin to record; raises what a launch before failed with."""
        global _open
        start = shim.library().ocl_profile_start
        start.restype = ctypes.c_int64
        self._since = start()
        if self._since < 0:
            raise launch.error(-self._since)
        _open += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the devices and print."""
        global _open
        _open -= 1
        stop = shim.library().ocl_profile_stop
        stop.restype = ctypes.c_char_p
        lines = stop(ctypes.c_int64(self._since))
        if lines is None:
            raise launch.error(launch.FAILED)
        for line in lines.decode().splitlines():
            device, start, end, size, name = line.split(" ", 4)
            self.commands.append(Command(name, int(device), int(start), int(end), int(size)))
        if self._file is not None:
            print(self.table(self._rows), file=self._file)

    def table(self, rows: int = 20) -> str:
        """Return the slowest `rows` kinds of command: time in all, share, calls, mean, GB/s."""
        kinds: defaultdict[tuple[str, int], list[Command]] = defaultdict(list)
        for command in self.commands:
            kinds[command.name, command.device].append(command)
        totals = {kind: sum(c.milliseconds for c in calls) for kind, calls in kinds.items()}
        whole = sum(totals.values()) or 1.0
        lines = [f"{'kernel':<40}{'device':>8}{'ms':>10}{'%':>7}{'calls':>7}{'mean µs':>11}"]
        ranked = sorted(totals, key=lambda kind: totals[kind], reverse=True)
        for name, device in ranked[:rows]:
            total, calls = totals[name, device], len(kinds[name, device])
            lines.append(
                f"{name:<40}{f'ocl:{device}':>8}{total:>10.3f}{100 * total / whole:>7.1f}"
                f"{calls:>7}{1e3 * total / calls:>11.1f}"
            )
        lines.append(f"{len(self.commands)} commands, {sum(totals.values()):.3f} ms on the device")
        return "\n".join(lines)
