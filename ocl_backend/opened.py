"""Opens the devices and gives torch their operators, when it is imported: once in a process.

The first use of a device imports it, so that Python's import lock lets one thread open them. What
the device does is in the other modules.
"""

from __future__ import annotations

import atexit
import warnings
from contextlib import suppress

import torch

import ocl_autoload
from ocl_backend import module, ops, printing
from ocl_backend.dispatch import walked
from ocl_backend.fusion import held
from ocl_backend.ops.image import padding
from ocl_backend.ops.norm import nested_layer_norm, rms_norm
from ocl_backend.ops.reduce import similarity
from ocl_backend.ops.sequence import attention, recurrent_network, sharding, transformer
from ocl_backend.ops.sparse import layouts
from ocl_backend.ops.tensor import copies, quantized
from ocl_backend.ops.training import averaged_models, optim, optimizer_steps
from ocl_backend.runtime import compiling, devices, generators, idle, memory, pending, shim, streams
from ocl_backend.vision import operators


def _open() -> None:
    library = shim.library()
    ocl_autoload.announce(library, module)
    memory.open_devices()
    library.ocl_open_later(None, 0)
    generators.open_generators(ocl_autoload.seed)
    walked.register()
    held.register()
    pending.register()
    copies.register()
    printing.register()
    ops.register()
    quantized.register()
    layouts.register()
    nested_layer_norm.register()
    operators.register()
    transformer.register_layers()
    recurrent_network.register()
    rms_norm.register()
    padding.register()
    similarity.register()
    attention.describe()
    sharding.register()
    optim.prefer_fused()
    optimizer_steps.replace()
    averaged_models.replace()
    atexit.register(_settle)
    if (count := devices.device_count()) and shim.is_of_these_sources():
        ocl_autoload.remember(shim.path(), compiling.sources(), count)


_last: list[torch.Tensor] = []


def _settle() -> None:
    """Let devices and autograd's threads come to rest before the interpreter goes down.

    A backward pass returns before its threads have dropped everything that belongs to it. Some of
    that are Python objects: dropping them needs the interpreter, and without it the process aborts.
    So a last pass without Python objects goes through each thread's queue, and its own objects are
    kept. It enters the engine directly, because `Tensor.backward` leaves a Python object in every
    pass.
    """
    idle.end()
    pending.drop()
    warnings.simplefilter("ignore")  # of programs that nothing builds any more
    for index in range(devices.device_count()):
        # without 4 bytes left, or a program after Ctrl-C, the rest is not worth more
        with suppress(Exception):
            _pass_through(torch.device("ocl", index))
        with suppress(Exception):  # of a result that no call waited for
            streams.synchronize(index)
    memory.stop_submitters()


def _pass_through(device: torch.device) -> None:
    engine = torch.autograd.Variable._execution_engine
    threads = torch.autograd.set_multithreading_enabled(True)
    with threads, torch.inference_mode(False), torch.enable_grad():  # a program may end without
        leaf = torch.empty(1, device=device, requires_grad=True)
        result, gradient = leaf.view(1), leaf.detach().clone()
    _last.extend((leaf, result, gradient))
    engine.run_backward((result,), (gradient,), False, False, (), True, accumulate_grad=True)


_open()
