"""What the shim makes of launches and sequences of them: calls of its functions, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ocl_backend.runtime import shim
from oclgen.opencl.device import LaunchError


def new_launch(
    device: int,
    kernel: int | None,
    number: int,
    name: str,
    global_size: Sequence[int],
    local_size: Sequence[int] | None,
    kinds: Sequence[int],
    indices: Sequence[int],
    item_bytes: Sequence[int],
    fixed: Sequence[tuple[int, np.generic]],
) -> int:
    """Return a new launch.

    Args:
        device: its index.
        kernel: the shim's; None while its program is built.
        number: of that program.
        name: of the kernel.
        global_size: work-items along each dimension.
        local_size: those of a group; None: the runtime chooses.
        kinds: of the arguments that change.
        indices: their places.
        item_bytes: bytes of the items of those that are pointers.
        fixed: places and values of the others.

    Raises:
        LaunchError: an argument does not fit.
    """
    create = shim.library().ocl_launch_new
    create.restype = ctypes.c_void_p
    handle: int | None = create(
        ctypes.c_int(device),
        ctypes.c_void_p(kernel),
        ctypes.c_int64(number),
        name.encode(),
        ctypes.c_uint32(len(global_size)),
        _array(ctypes.c_size_t, global_size),
        None if local_size is None else _array(ctypes.c_size_t, local_size),
        ctypes.c_uint32(len(kinds)),
        _array(ctypes.c_int32, kinds),
        _array(ctypes.c_int32, indices),
        _array(ctypes.c_int32, item_bytes),
        ctypes.c_uint32(len(fixed)),
        _array(ctypes.c_uint32, [index for index, _ in fixed]),
        _array(ctypes.c_uint32, [value.nbytes for _, value in fixed]),
        b"".join(value.tobytes().ljust(8, b"\0") for _, value in fixed),
    )
    if handle is None:
        raise LaunchError(shim.last_error())
    return handle


def new_sequence(
    device: int,
    parts: Sequence[tuple[int, Sequence[int]]],
    values: int,
    workspaces: Sequence[int],
    fixed: Sequence[int],
    of_weights: int,
) -> int:
    """Return a new sequence.

    Args:
        device: its index.
        parts: launches, and the places of what each takes.
        values: how many a call gives.
        workspaces: bytes of each.
        fixed: words behind those of a call.
        of_weights: how many of the launches depend on weights alone.
    """
    create = shim.library().ocl_sequence_new
    create.restype = ctypes.c_void_p
    handle: int = create(
        ctypes.c_int(device),
        ctypes.c_uint32(values),
        ctypes.c_uint32(len(fixed)),
        _array(ctypes.c_int64, fixed),
        ctypes.c_uint32(len(workspaces)),
        _array(ctypes.c_size_t, workspaces),
        ctypes.c_uint32(len(parts)),
        _array(ctypes.c_void_p, [handle for handle, _ in parts]),
        _array(ctypes.c_uint32, [len(places) for _, places in parts]),
        _array(ctypes.c_uint32, [place for _, places in parts for place in places]),
        ctypes.c_uint32(of_weights),
    )
    return handle


def launch_like(pattern: int, words: bytes) -> int:
    """Return a launch with the kernel of another one, which never runs.

    Args:
        pattern: that one.
        words: sizes, and what never changes, eight bytes each.
    """
    handle: int = _like()(pattern, words)
    return handle


@cache
def _like() -> Callable[[int, bytes], int]:
    make = shim.library()["ocl_launch_like"]
    make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
    return make


@cache
def entries() -> tuple[Callable[[int, bytes], int], Callable[[int], None]]:
    """Return the shim's functions that enqueue what is prepared, and delete it.

    ctypes passes one packed argument faster than one for each word.
    """
    enqueue, delete = shim.library()["ocl_enqueue"], shim.library()["ocl_delete"]
    enqueue.argtypes, delete.argtypes = [ctypes.c_void_p, ctypes.c_char_p], [ctypes.c_void_p]
    return enqueue, delete


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * len(values))(*values)
