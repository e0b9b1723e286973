"""A device whose programs take their time, and sizes that no launch was prepared for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

from oclgen.opencl.device import BuildError

_sizes = count(37)


def unmet() -> int:
    """Return a size whose launches nothing in this process has prepared."""
    return next(_sizes)


class Late:
    """A device whose programs are built when they are waited for, and no sooner."""

    def __init__(self, ahead: Any) -> None:
        self._find, self._wait = ahead.find, ahead.wait
        self._sources: dict[Future[Any], str] = {}
        self.refused: Callable[[str], bool] = lambda source: False
        self.waits = 0

    def find(self, source: str) -> Future[Any]:
        future: Future[Any] = Future()
        self._sources[future] = source
        return future

    def wait(self, future: Future[Any], tell: Any = None) -> Any:
        self.waits += 1
        source = self._sources[future]
        if self.refused(source):
            raise BuildError("the compiler refused it")
        if not future.done():
            found = self._find(source)
            future.set_result(self._wait(found) if isinstance(found, Future) else found)
        return future.result()
