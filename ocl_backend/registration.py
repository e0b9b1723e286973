"""Makes torch know the device `ocl`: its name, its module and its operators, once per process.

What the device does is in the other modules.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache

import torch
from torch.utils import backend_registration

from ocl_backend import copies, fallback, memory, module, ops
from ocl_backend.ops import optim


@cache
def register() -> None:
    """Register the device; later calls do nothing.

    Raises:
        ShimError: the native part could not be compiled.
        RuntimeError: another backend has already taken torch's slot for private devices.
    """
    backend_registration.rename_privateuse1_backend("ocl")
    memory.open_devices()
    register_module: Callable[..., None] = torch._register_device_module
    register_module("ocl", module)
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    copies.register()
    ops.register()
    optim.prefer_fused()
    fallback.configure()
    atexit.register(_finish_all)


def _finish_all() -> None:
    """Let the devices come to rest before the interpreter takes their queues down."""
    for index in range(module.device_count()):
        module.synchronize(index)
