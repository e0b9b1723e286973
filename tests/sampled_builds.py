"""Builds most programs of a run without the compiler's optimiser, and all in other processes.

On a processor, a program takes a fifteenth of the time without the optimiser. One program in
`EVERY` is built as users build it, chosen by its text; all are with `THOROUGH=1`. What the compiler
of Intel's runtime allocates, four megabytes for a program, stays for as long as its process lives:
so the tests' process builds nothing itself, though users' do while they wait. Graphics processors
and processes that a test starts build as users do.
"""

from __future__ import annotations

from functools import cache

from tests import samples

EVERY = 16


def is_sampled(source: str) -> bool:
    """Return whether the program of this text is built as users build it."""
    return samples.THOROUGH or samples.number(source) % EVERY == 0


def needs_optimiser(runtime: str, source: str) -> bool:
    """Return whether a processor's compiler ends its process without the optimiser.

    PoCL 7.1 then knows no vectors of 512 bits, as the assembly of `vdpbf16ps` takes them.
    """
    return "Portable" in runtime and "__asm__" in source


@cache
def begin() -> None:
    """Let programs that are built from now on for this process be sampled."""
    import oclgen.opencl.device  # noqa: F401 (first: it tells the loader where the runtimes lie)
    from oclgen.opencl import ahead
    from oclgen.opencl.programs import Programs

    as_users_do = Programs.options
    ahead.HELPS = False

    def options(programs: Programs, source: str) -> tuple[str, ...]:
        given = as_users_do(programs, source)
        as_given = (
            programs.info.kind != "cpu"
            or is_sampled(source)
            or needs_optimiser(programs.info.runtime, source)
        )
        return given if as_given else (*given, "-cl-opt-disable")

    Programs.options = options  # type: ignore[method-assign, assignment]
