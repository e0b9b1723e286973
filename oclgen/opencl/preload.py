"""Programs that a script used last time, loaded by a thread while the script goes on.

To load a program takes 2 to 6 ms, and a network has hundreds. A script uses them in the same order
each time. The thread stays some programs ahead of it, and stops when the script uses others, which
bounds what is loaded in vain.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from oclgen.opencl import binaries
from oclgen.opencl.binaries import Binaries
from oclgen.opencl.programs import MOST_PROGRAMS, Programs

FOLDER, SHARE = "used", 1 / 256
"""The folder in the user's cache, and its part of the bound for programs."""
AHEAD = 32
"""Programs that the thread loads beyond those of its list that were asked for."""
LAST_S = 1.0
"""Seconds that the end of a process waits for the load under way: some drivers crash otherwise."""


class Preload:
    """The thread of one device, and the list of what its script uses, in order of first use.

    Args:
        programs: of the device.
        stored: where lists are kept.
        script: what the process runs, as a name.
    """

    def __init__(self, programs: Programs, stored: Binaries, script: str) -> None:
        self._programs, self._stored = programs, stored
        self._name = hashlib.sha256(programs.key(script).encode()).hexdigest()
        self.known = self._read()
        self._expected = frozenset(self.known)
        self._hits = 0
        self._news, self._is_ended = Event(), False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Load what the last run used, and note what this one uses."""
        self._programs.hear(self._note)
        atexit.register(self.end)
        if self.known:
            self._thread = Thread(target=self._load, name="preload", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop the thread, and keep what was used; what only earlier runs used comes after it."""
        self._is_ended = True
        self._news.set()
        if self._thread is not None:
            self._thread.join(LAST_S)
        used = self._programs.used
        listed = list(dict.fromkeys((*used, *self.known)))[:MOST_PROGRAMS]
        if listed != self.known:
            self._stored.put(self._name, json.dumps(listed).encode())

    def _read(self) -> list[str]:
        with suppress(ValueError, TypeError):
            if (content := self._stored.get(self._name)) is not None:
                return [str(key) for key in json.loads(content)]
        return []

    def _note(self, key: str) -> None:
        """Hear that a program is asked for, for the first time in this process."""
        if key in self._expected:
            self._hits += 1
            self._news.set()

    def _load(self) -> None:
        for number, key in enumerate(self.known):
            while number >= self._hits + AHEAD and not self._is_ended:
                self._news.wait()
                self._news.clear()
            if self._is_ended:
                return
            self._programs.preload(key)


def begin(programs: Programs) -> None:
    """Preload the programs of a device for the script that runs, if it is one.

    Args:
        programs: of the device.
    """
    stored = binaries.of_user(FOLDER, SHARE)
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else None
    if script is not None and stored.most_bytes and script.is_file():
        Preload(programs, stored, str(script.resolve())).start()
