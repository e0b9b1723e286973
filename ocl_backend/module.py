"""The module `torch.ocl`, the counterpart of torch.cuda: it gathers names from other modules.

It defines only what torch itself asks of a device's module, under names that torch has set.
"""

from __future__ import annotations

import os

from torch import AcceleratorError, OutOfMemoryError

from ocl_backend import amp, tunable
from ocl_backend.compilation import NoInductor
from ocl_backend.dispatch import racing  # noqa: F401 (it hears of problems)
from ocl_backend.dispatch.fallback import fallbacks, reset_fallbacks
from ocl_backend.dispatch.settings import (
    conv,
    fusion,
    keep_weights,
    matmul,
    set_conv_accuracy,
    set_fusion,
    set_racing,
    set_sync_errors,
)
from ocl_backend.dispatch.tuned import explain, reload_tuned
from ocl_backend.graphed import make_graphed_callables
from ocl_backend.ops.linear.packed import pack_int4, packed_linear
from ocl_backend.ops.linear.packed import unpacked as unpack_weights
from ocl_backend.runtime import figures as memory
from ocl_backend.runtime import generators as random
from ocl_backend.runtime import graphs, streams
from ocl_backend.runtime.condition import (
    clock_rate,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from ocl_backend.runtime.devices import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    set_device,
)
from ocl_backend.runtime.figures import (
    device_memory_used,
    empty_cache,
    get_per_process_memory_fraction,
    kept_weights_bytes,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from ocl_backend.runtime.generators import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from ocl_backend.runtime.graphs import (
    OCLGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)
from ocl_backend.runtime.host_figures import (
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    reset_accumulated_host_memory_stats,
    reset_peak_host_memory_stats,
)
from ocl_backend.runtime.profiling import profile
from ocl_backend.runtime.snapshots import memory_snapshot
from ocl_backend.runtime.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)

__all__ = [
    "AcceleratorError",
    "CUDAGraph",
    "Event",
    "OCLGraph",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "clock_rate",
    "conv",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "explain",
    "fallbacks",
    "fusion",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "graph_pool_handle",
    "graphs",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "keep_weights",
    "kept_weights_bytes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "matmul",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "pack_int4",
    "packed_linear",
    "power_draw",
    "profile",
    "random",
    "reload_tuned",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_fallbacks",
    "reset_max_memory_allocated",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_conv_accuracy",
    "set_device",
    "set_fusion",
    "set_per_process_memory_fraction",
    "set_racing",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_errors",
    "stream",
    "streams",
    "synchronize",
    "temperature",
    "tunable",
    "unpack_weights",
    "utilization",
]

CUDAGraph = OCLGraph
"""Programs for torch.cuda ask a device's module for this name."""

Scheduling = PythonWrapperCodegen = CppWrapperCodegen = WrapperFxCodegen = NoInductor
"""Inductor asks for these names."""

_initialized = True
"""torch.utils.checkpoint keeps the generators of a device only if it reads this."""

_forked = False


def is_initialized() -> bool:
    """Return True: this module is in its place only once the devices are open."""
    return _initialized


def init() -> None:
    """Do nothing: the devices are open once this module is in its place."""


def ipc_collect() -> None:
    """Do nothing: no memory is shared with other processes that could be given back."""


def _mark_forked() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_mark_forked)


def _is_in_bad_fork() -> bool:
    return _forked
