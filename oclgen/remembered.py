"""Results that a process keeps on disk for the next one: choices for problems, texts of plans.

A value is stored under a digest of everything that it was made from: what the caller names, and the
content of every file of code, template, model and record that could have had a part in it. If
anything changes, the digest is another one, and the old value is never found. Values are small and
bounded in number, and are checked when they are read, as programs are (`oclgen.opencl.binaries`).
They are written when the process has time: a second after the last one came, or at its end. If a
file of code changed since the process began, the content of its loaded code is unknown: then it
neither reads nor writes.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sys
import zlib
from collections import deque
from contextlib import suppress
from functools import cache
from importlib import resources
from math import inf
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import mako
import numpy as np

import oclgen
from oclgen.opencl import binaries
from oclgen.opencl.binaries import Binaries

PACKAGES = ("oclgen", "tuned_db")
"""Those whose content is part of each name: they choose and write kernels."""
KINDS = (".py", ".mako", ".npz", ".jsonl")
FOLDER, SHARE = "choices", 1 / 16
"""The folder in the user's cache, and its part of the bound for programs."""
CLOCK_S = 2.0
"""Seconds by which a file's time of change may lie behind the clock."""
QUIET_S = 1.0
"""Seconds without a new value after which values are written: while a network is met for the first
time, the processor has more urgent work."""

IS_ON = True
"""Tests replace functions, which no digest of files shows; they switch this off."""


class Remembered:
    """Values as JSON has them, by texts that name all they were made from; for many threads."""

    def __init__(self, stored: Binaries) -> None:
        """Touch nothing yet.

        Args:
            stored: where they are kept.
        """
        self._stored = stored
        self._waiting: deque[tuple[str, Any]] = deque()
        self._news = Event()
        self._lock, self._writing = Lock(), Lock()
        self._writer: Thread | None = None

    def get(self, *made_from: str) -> Any:
        """Return what was put; None if there is nothing, or it is damaged."""
        if not IS_ON or (code := _code()) is None:
            return None
        content = self._stored.get(key := _key(code, made_from))
        if content is None:
            return None
        try:
            return json.loads(zlib.decompress(content))
        except (ValueError, zlib.error):
            self._stored.drop(key)
            return None

    def put(self, value: Any, *made_from: str) -> None:
        """Keep a value, soon."""
        if not IS_ON or not self._stored.most_bytes or (code := _code()) is None:
            return
        self._waiting.append((_key(code, made_from), value))
        self._news.set()
        if self._writer is None or not self._writer.is_alive():  # none yet, or a fork's parent's
            self._start()

    def write(self) -> None:
        """Write what waits; drop it if it may have been made by other code than its name says.

        What another thread is writing is written after this call, too.
        """
        with self._writing:
            if self._waiting and _is_changed(_files()):
                self._waiting.clear()
            while self._waiting:
                key, value = self._waiting.popleft()
                self._stored.put(key, zlib.compress(json.dumps(value).encode(), 1))

    def _start(self) -> None:
        with self._lock:
            if self._writer is None:
                atexit.register(self.write)
            elif self._writer.is_alive():
                return
            self._writer = Thread(target=self._write_when_quiet, name="remember", daemon=True)
            self._writer.start()

    def _write_when_quiet(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            while self._news.wait(QUIET_S):
                self._news.clear()
            self.write()


@cache
def of_user() -> Remembered:
    """Return the user's; with `OCLGEN_CACHE_MIB=0` nothing is kept."""
    return Remembered(binaries.of_user(FOLDER, SHARE))


def _key(code: str, made_from: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps([code, *made_from]).encode()).hexdigest()


@cache
def _code() -> str | None:
    """Return a digest of what works values out: our files, Python, and the libraries they use.

    Returns:
        None if a file was changed since this process began to load them.
    """
    with suppress(OSError):  # one has just gone
        found = hashlib.sha256(f"{sys.version} {np.__version__} {mako.__version__}".encode())
        for name, path in (files := _files()):
            found.update(f"{name}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
        if not _is_changed(files):
            return found.hexdigest()
    return None


def _files() -> list[tuple[str, Path]]:
    """Return every file that a value may depend on, by a name that is its own; none in archives."""
    roots = [(package, str(resources.files(package))) for package in PACKAGES]
    return sorted(
        (f"{package}{folder.removeprefix(root)}/{name}", Path(folder, name))
        for package, root in roots
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(KINDS)
    )


def _is_changed(files: list[tuple[str, Path]]) -> bool:
    """Say whether a file was changed, or put in its place, since this process began."""
    newest = inf
    with suppress(OSError):  # one has just gone
        newest = max((path.stat().st_ctime for _, path in files), default=inf)
    return newest > oclgen.BEGUN - CLOCK_S
