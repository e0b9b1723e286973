"""Builds most programs of a run without the compiler's optimiser, and all in other processes.

On a processor, a program takes a fifth to a fifteenth of the time without the optimiser. Built as
users build them are every family's default (`as_users_build`), one program in `EVERY` of the rest,
chosen by its text, and with `THOROUGH=1` all. What emulates an instruction is left out: users never
build it, and the optimiser takes up to 18 s for one text of it. The compilers take 100 MB each of
the process that builds, and more with every optimised program: so the tests' process builds
nothing itself, though users' do while they wait. Graphics processors and processes that a test
starts build as users do, except for those that call `begin`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tests import declarations, home, samples
from tests.declarations import UNREAD

EVERY = 512
EMULATED = "// emulates an instruction that this device lacks\n"
"""The first line of each text that stands for an instruction."""
LIFE = 500
"""Builds of a process: without the optimiser its memory does not grow, and it takes half a second
of a core to start and to build its first program."""
UNOPTIMISED = "-cl-opt-disable"
FORCED = "PYOPENCL_BUILD_OPTIONS"
"""Environment variable of options that pyopencl adds to those of every program."""
IDLE_S = 10.0
"""Seconds after which a process without work ends: shorter pauses are frequent."""
_all_as_users_do = False


def is_sampled(source: str) -> bool:
    """Return whether the program of this text is built as users build it."""
    if samples.THOROUGH or _all_as_users_do:
        return True
    return EMULATED not in source and samples.number(source) % EVERY == 0


@contextmanager
def as_users_build() -> Iterator[None]:
    """Build every program as users do meanwhile."""
    global _all_as_users_do
    _all_as_users_do = True
    try:
        yield
    finally:
        _all_as_users_do = False


def needs_optimiser(runtime: str, source: str) -> bool:
    """Return whether a processor's compiler ends its process without the optimiser.

    PoCL 7.1 then knows no vectors of 512 bits, as the assembly of `vdpbf16ps` takes them.
    """
    return "Portable" in runtime and "__asm__" in source


def does_without_optimiser(info: Any) -> bool:
    """Return whether a device's compiler builds every program without the optimiser."""
    is_known = declarations.VERSION in info.runtime_version
    return info.kind == "cpu" and (is_known or not needs_optimiser(info.runtime, "__asm__"))


def _share_processes(builder: Any) -> None:
    """Let all that build for one device use the same processes, of which each takes 100 MB.

    A test that shows a device other limits makes another `Device` of it, with a builder of its own:
    its process would take a third of a second to start, and stay for seconds after the test.
    """
    made = builder._made
    pools: dict[Any, Any] = {}

    def shared(ahead: Any) -> Any:
        if not ahead._programs.stored.folder.is_relative_to(home.CACHE):
            return made(ahead)  # of a test of the processes themselves, which ends them
        chosen = [os.environ.get(name) for name in ("CL_CONFIG_USE_VECTORIZER", FORCED)]
        key = (ahead._index, ahead._info, ahead._processes, *chosen)
        if key not in pools or pools[key].is_closed:
            pools[key] = made(ahead)
            if declarations.are_known(ahead._programs.handle.platform):
                _shorten(pools[key])
        return pools[key]

    builder._made = shared


def _shorten(pool: Any) -> None:
    """Let the processes read few declarations with a program that is built without the optimiser.

    Its name on disk stays that of its own text and options.
    """
    submit = pool.submit

    def submitted(question: Any, size: int = 0) -> Any:
        if UNOPTIMISED in getattr(question, "options", ()) and "##" not in question.text:
            text = declarations.shortened(question.text)
            question = question._replace(text=text, options=(*question.options, UNREAD))
        return submit(question, size)

    pool.submit = submitted


@cache
def begin() -> None:
    """Let programs that are built from now on for this process be sampled.

    The device itself tells whether it is a processor: a profile or a test may show a GPU instead.
    """
    import oclgen.opencl.device  # noqa: F401, I001 (first: it tells the loader where runtimes lie)
    import pyopencl as cl
    from oclgen.measuring import builders
    from oclgen.opencl import ahead
    from oclgen.opencl.programs import Programs

    as_users_do = Programs.options
    ahead.HELPS = False
    if not samples.THOROUGH:
        builders.LIFE, ahead.IDLE_S = LIFE, IDLE_S
    _share_processes(ahead.Ahead)

    def is_processor(programs: Programs) -> bool:
        if programs.handle is None:  # in tests of what needs no device
            return programs.info.kind == "cpu"
        return bool(programs.handle.type & cl.device_type.CPU)

    def options(programs: Programs, source: str) -> tuple[str, ...]:
        given = as_users_do(programs, source)
        as_given = (
            not is_processor(programs)
            or is_sampled(source)
            or needs_optimiser(programs.info.runtime, source)
        )
        return given if as_given else (*given, UNOPTIMISED)

    Programs.options = options  # type: ignore[method-assign, assignment]
