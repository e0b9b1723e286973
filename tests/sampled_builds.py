"""Builds most programs of a run without the compiler's optimiser, which takes most of its time.

On a processor, a program takes a fifth of the time and hardly any memory without it; with it, what
the compiler allocates stays for as long as the process lives. One program in `EVERY` is built as
users build it, chosen by its text and so the same in every run; all are with `THOROUGH=1`, as a
nightly run sets it. Graphics processors and processes that a test starts build as users do.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from typing import Any

EVERY = 8


def is_sampled(source: str) -> bool:
    """Return whether the program of this text is built as users build it."""
    return int.from_bytes(sha256(source.encode()).digest()[:4], "big") % EVERY == 0


@cache
def begin() -> None:
    """Let programs that are built from now on in this process be sampled."""
    import pyopencl as cl

    import oclgen.opencl.device  # noqa: F401 (first: it tells the loader where the runtimes lie)

    if os.environ.get("THOROUGH", "0") not in ("", "0"):
        return
    as_users_do = cl.Program.build

    def build(program: Any, options: Any = None, *given: Any, **named: Any) -> Any:
        context, source = (getattr(program, name, None) for name in ("_context", "_source"))
        on_cpu = context and all(one.type & cl.device_type.CPU for one in context.devices)
        if on_cpu and source and not is_sampled(source):
            options = [*(options or ()), "-cl-opt-disable"]
        return as_users_do(program, options, *given, **named)

    cl.Program.build = build
