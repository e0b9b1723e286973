"""Builds most programs of a run without the compiler's optimiser, and Intel's in another process.

On a processor, a program takes a fifteenth of the time without the optimiser. One program in
`EVERY` is built as users build it, chosen by its text; all are with `THOROUGH=1`. What the compiler
of Intel's runtime allocates, four megabytes for a program, stays for as long as its process lives:
a process that ends after `LIFE` programs leaves their binaries in pyopencl's cache, from which the
tests take them. Graphics processors and processes that a test starts build as users do.
"""

from __future__ import annotations

import os
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from tests import samples

EVERY = 16
LIFE = 60
"""Programs that a process compiles before another one takes its place."""


def is_sampled(source: str) -> bool:
    """Return whether the program of this text is built as users build it."""
    return samples.THOROUGH or samples.number(source) % EVERY == 0


def is_elsewhere(device: Any) -> bool:
    """Return whether programs of this device are built in a process of their own.

    They come back by pyopencl's cache, which leaves out runtimes that keep binaries themselves.
    """
    import pyopencl as cl
    from pyopencl.characterize import has_src_build_cache

    is_kept = "PYOPENCL_NO_CACHE" not in os.environ and not has_src_build_cache(device)
    return is_kept and bool(device.type & cl.device_type.CPU)


@cache
def begin() -> None:
    """Let programs that are built from now on in this process be sampled."""
    import pyopencl as cl

    import oclgen.opencl.device  # noqa: F401 (first: it tells the loader where the runtimes lie)

    as_users_do = cl.Program.build
    compiler = Compiler()

    def build(program: Any, options: Any = None, *given: Any, **named: Any) -> Any:
        context, source = (getattr(program, name, None) for name in ("_context", "_source"))
        if context and source and all(d.type & cl.device_type.CPU for d in context.devices):
            if not is_sampled(source):
                options = [*(options or ()), "-cl-opt-disable"]
            (device,) = context.devices
            if is_elsewhere(device):
                compiler.compile(device.platform.name, device.name, source, options)
        return as_users_do(program, options, *given, **named)

    cl.Program.build = build


class Compiler:
    """A process that builds programs, until it has built `LIFE`; then another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._built = 0

    @property
    def is_alive(self) -> bool:
        """Whether a process waits for programs."""
        return self._pool is not None

    def compile(self, *asked: Any) -> bool:
        """Leave what `_compile` is asked for in pyopencl's cache; return whether it tried."""
        with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
                self._built = 0
            self._built += 1
            succeeds = _succeeds(self._pool, asked)
            if not succeeds or self._built >= LIFE:
                self.end()
            return succeeds

    def end(self) -> None:
        """Let the process end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def _succeeds(pool: ProcessPoolExecutor, asked: tuple[Any, ...]) -> bool:
    try:
        return pool.submit(_compile, *asked).result()
    except Exception:  # the tests build it themselves and tell what is wrong with it
        return False


def _end_with_parent() -> None:
    """Let the process of a `Compiler` end when the tests' process does, killed or not."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _compile(platform: str, device: str, source: str, options: Any) -> bool:
    """Build a program in the process of a `Compiler`; false if the device is not there."""
    import pyopencl as cl

    context = _context(platform, device)
    if context is None:
        return False
    with warnings.catch_warnings(), suppress(cl.Error):
        warnings.simplefilter("ignore", cl.CompilerWarning)
        cl.Program(context, source).build(options)
    return True


@cache
def _context(platform: str, device: str) -> Any:
    import pyopencl as cl

    import oclgen.opencl.device  # noqa: F401 (it tells the loader where the runtimes lie)

    for one in cl.get_platforms():
        for handle in one.get_devices():
            if (one.name, handle.name) == (platform, device):
                return cl.Context([handle])
    return None
