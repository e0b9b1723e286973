"""Registers the device `ocl` with torch: its name, its module, and functions around its operators.

`ocl_backend.opened`, which the first use of a device imports, brings devices and operators.
"""

from __future__ import annotations

from functools import cache

import torch  # noqa: F401 (first: its import asks for `ocl_autoload.load`)

import ocl_autoload
from ocl_backend import (
    backends,
    compilation,
    data_parallel,
    exchange,
    notices,
    sharing,
)
from ocl_backend.dispatch import fallback_policy


@cache
def register() -> None:
    """Register the device; later calls do nothing.

    Where devices were found before, they are opened by their first use, else at once.

    Raises:
        ShimError: the native part could not be compiled.
        RuntimeError: another backend has already taken torch's slot for private devices.
        ValueError: `OCLGEN_FALLBACK` has a value that it must not have.
    """
    is_known = ocl_autoload.announce_known()
    ocl_autoload.is_imported = True
    fallback_policy.configure()
    sharing.register()
    exchange.register()
    data_parallel.register()
    compilation.register()
    backends.register()
    notices.register()
    if not is_known:
        from ocl_backend import opened  # noqa: F401 (opens the devices)
