"""Operators that run on the CPU because no kernel is registered: the counts and the policy.

The calls themselves are made by the shim; nothing here decides which operators have kernels.
"""

from __future__ import annotations

import ctypes
import os

from ocl_backend import shim

VARIABLE = "OCLGEN_FALLBACK"
POLICIES = ("warn", "error")


def configure() -> None:
    """Read the policy from the environment: `warn` (once per operator, the default) or `error`.

    Raises:
        ValueError: `OCLGEN_FALLBACK` is neither.
    """
    policy = os.environ.get(VARIABLE, "warn")
    if policy not in POLICIES:
        raise ValueError(f"{VARIABLE}={policy!r}; it must be one of {', '.join(POLICIES)}")
    shim.library().ocl_fallback_refuse(ctypes.c_int(policy == "error"))


def fallbacks() -> dict[str, int]:
    """Return how often each operator ran on the CPU since the start or the last reset."""
    read = shim.library().ocl_fallback_counts
    read.restype = ctypes.c_char_p
    lines = (line.rsplit(" ", 1) for line in read().decode().splitlines())
    return {name: int(count) for name, count in lines}


def reset_fallbacks() -> None:
    """Forget the counts; every operator warns once again."""
    shim.library().ocl_fallback_reset()
