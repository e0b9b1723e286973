"""Built programs on disk: bytes by a key, checked when read, bounded, shared by processes.

`oclgen.opencl.programs` says what a key is made of, and which programs are worth keeping. Nothing
here knows OpenCL. A cache must never be the reason that something fails: a program that cannot be
read is built again, and one that cannot be written is not kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import platformdirs

SIZE_VARIABLE = "OCLGEN_CACHE_MIB"
MOST_MIB = 1024
"""Bound of the cache: some 20,000 programs of a processor, tens of networks."""
MIB = 1 << 20

_CHECKSUM_BYTES = hashlib.sha256().digest_size
_ROOM = 0.9
"""Files are removed down to this part of the bound, so that not every write removes one."""
FEW = 32
"""Programs that make a folder one that was used: a small network has more, probes of devices and a
first try have less."""
_ABANDONED_S = 3600.0
"""Age from which a temporary file is what a killed process left behind."""
_TEMPORARY = ".new-"

log = logging.getLogger(__name__)


@dataclass
class Binaries:
    """A folder with one file per program: a SHA-256 of the rest, then the binary.

    The file's time is that of its last use; the least recently used go when `most_bytes` are
    passed. Safe to use from any number of threads and processes.
    """

    folder: Path
    most_bytes: int
    _bytes: int = field(default=-1, init=False)  # in the folder by the last count; -1: not counted
    _is_told: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Touch nothing yet: the folder is made by the first write."""
        self._lock = threading.Lock()

    @property
    def is_new(self) -> bool:
        """Whether less than a network needs was put here yet, by any process, and more may be."""
        if not self.most_bytes:
            return False
        with suppress(OSError), os.scandir(self.folder) as entries:
            return next(islice(entries, FEW - 1, None), None) is None
        return True

    def get(self, key: str) -> bytes | None:
        """Return what was put under `key`; None if there is nothing, or it is damaged."""
        path = self.folder / key
        try:
            content = path.read_bytes()
            checksum, binary = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
            if hashlib.sha256(binary).digest() == checksum:
                os.utime(path)
                return binary
            self.drop(key)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._tell(error)
        return None

    def put(self, key: str, binary: bytes) -> None:
        """Keep `binary` under `key`; another process sees all of it or nothing."""
        content = hashlib.sha256(binary).digest() + binary
        if len(content) > self.most_bytes:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(temporary).replace(self.folder / key)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            self._bound(len(content))
        except OSError as error:
            self._tell(error)

    def drop(self, key: str) -> None:
        """Forget `key`: its content is of no use."""
        with suppress(OSError):
            (self.folder / key).unlink()

    def _bound(self, added: int) -> None:
        """Remove the least recently used files once more than `most_bytes` are kept."""
        with self._lock:
            if self._bytes >= 0:
                self._bytes += added
            if 0 <= self._bytes <= self.most_bytes:
                return
            files = list(self._files())  # also what other processes wrote
            self._bytes = sum(size for _, size, _ in files)
            if self._bytes <= self.most_bytes:
                return
            for _, size, path in sorted(files):
                if self._bytes <= _ROOM * self.most_bytes:
                    return
                with suppress(FileNotFoundError):
                    Path(path).unlink()
                self._bytes -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yield last use, bytes and path of each file; of what a killed process left, remove it."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removed it
                    stat = entry.stat()
                    if not entry.name.startswith(_TEMPORARY):
                        yield stat.st_mtime, stat.st_size, entry.path
                    elif time.time() - stat.st_mtime > _ABANDONED_S:
                        Path(entry.path).unlink()

    def _tell(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            log.debug("programs are not kept in %s: %s", self.folder, error)


def of_user(folder: str = "programs", share: float = 1.0) -> Binaries:
    """Return the user's cache, as large as `OCLGEN_CACHE_MIB` says; with 0 it stays empty.

    Args:
        folder: below that of this project.
        share: its part of the bound.
    """
    try:
        mib = float(os.environ.get(SIZE_VARIABLE) or MOST_MIB)
    except ValueError:
        log.debug("%s is no number; %d is taken", SIZE_VARIABLE, MOST_MIB)
        mib = MOST_MIB
    return Binaries(platformdirs.user_cache_path("oclgen") / folder, int(mib * share * MIB))
