"""What the shim makes of launches and sequences of them: calls of its functions, through ctypes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache

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
        _packed("N", global_size),
        None if local_size is None else _packed("N", local_size),
        ctypes.c_uint32(len(kinds)),
        _packed("i", kinds),
        _packed("i", indices),
        _packed("i", item_bytes),
        ctypes.c_uint32(len(fixed)),
        _packed("I", [index for index, _ in fixed]),
        _packed("I", [value.nbytes for _, value in fixed]),
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
    places = [place for _, places in parts for place in places]
    return _sequence()(
        device, values, len(fixed), _packed("q", fixed), len(workspaces), _packed("N", workspaces),
        len(parts), _packed("P", [handle for handle, _ in parts]),
        _packed("I", [len(places) for _, places in parts]), _packed("I", places), of_weights,
    )  # fmt: skip


@cache
def _sequence() -> Callable[..., int]:
    make = shim.library()["ocl_sequence_new"]
    number, count, words = ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p
    make.argtypes = [
        number, count, count, words, count, words, count, words, words, words, count,
    ]  # fmt: skip
    make.restype = ctypes.c_void_p
    return make


def _packed(kind: str, values: Sequence[int]) -> bytes:
    """Return values as C has them in an array.

    ctypes makes a class for each length of array, which only a garbage collection frees.

    Args:
        kind: what `struct` calls the type: a `long` of 64 bits "q", `size_t` "N", `void *` "P",
            `uint32_t` "I", `int32_t` "i".
        values: in order.
    """
    return struct.pack(f"{len(values)}{kind}", *values)


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
