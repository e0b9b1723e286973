"""Forms of calls that the CPU took, kept on disk, so that later processes do not ask again.

To ask costs milliseconds for each form, on torch's meta device most of it, and a first training
step has some fifty. A file's name covers the answers' reasons: torch's build, the processor's
instructions, and the code that asks. Refusals are not kept: they carry a message.
"""

from __future__ import annotations

import atexit
import hashlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from oclgen.opencl import binaries
from oclgen.opencl.binaries import Binaries

FOLDER, SHARE = "accepted", 1 / 256
"""The folder in the user's cache, and its part of the bound for programs."""
MOST_KEPT = 1 << 14
"""Bound of a file's forms, 17 bytes each; no new ones are kept beyond it."""


class KnownForms:
    """Digests of forms; for threads, since each step on the set is one of the interpreter's."""

    def __init__(self, stored: Binaries) -> None:
        """Read what earlier processes found.

        Args:
            stored: where forms are kept.
        """
        self._stored, self._name = stored, _name()
        self._known = self._read()
        self._new: set[str] = set()

    def has(self, operator: str, form: Any) -> bool:
        """Say whether the CPU took such a call, in this process or an earlier one."""
        return _digest(operator, form) in self._known

    def add(self, operator: str, form: Any) -> None:
        """Note that the CPU took such a call."""
        if not self._new:
            atexit.register(self.write)
        self._new.add(one := _digest(operator, form))
        self._known.add(one)

    def write(self) -> None:
        """Keep what was found, beside what other processes have found meanwhile."""
        if self._new:
            kept = self._read() | self._new
            self._new = set()
            self._stored.put(self._name, json.dumps(sorted(kept)[:MOST_KEPT]).encode())

    def _read(self) -> set[str]:
        with suppress(ValueError, TypeError):
            if (content := self._stored.get(self._name)) is not None:
                return {*map(str, json.loads(content))}
        return set()


@cache
def of_user() -> KnownForms:
    """Return the user's; with `OCLGEN_CACHE_MIB=0` nothing is kept."""
    return KnownForms(binaries.of_user(FOLDER, SHARE))


def _digest(operator: str, form: Any) -> str:
    return hashlib.blake2b(f"{operator} {form!r}".encode(), digest_size=8).hexdigest()


def _name() -> str:
    """Return a digest of all that the CPU's answers depend on."""
    build = f"{torch.__version__} {torch.version.git_version}"
    instructions = torch.backends.cpu.get_cpu_capability()
    found = hashlib.sha256(f"{build} {instructions}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
