"""Whether operators without a kernel may run on the CPU: the environment decides.

It is read when the device is registered, before any operator is loaded.
"""

from __future__ import annotations

import ctypes
import os

from ocl_backend.runtime import shim

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
