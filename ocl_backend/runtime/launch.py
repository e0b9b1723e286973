"""Prepared launches: build and set a kernel once, then call it with data pointers only.

It runs kernels, one or several, on torch's memory; what to run is decided elsewhere.

    double = prepare(0, SOURCE, "double_all", (n,), [Pointer(4), Pointer(4), np.int64(n)])
    double(x.data_ptr(), out.data_ptr())

Every `Pointer` is two arguments of the kernel, as in `oclgen.plan`: `__global T *x, long x_offset`.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache, lru_cache, partial
from threading import local
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ocl_backend.runtime import pending, shim
from ocl_backend.runtime.kernel import Kernel, are_const, kernel_of
from oclgen.opencl.device import BuildError, Device, LaunchError, devices


class RefusedError(LaunchError, torch.AcceleratorError):
    """The runtime refused a launch whose arguments it had taken: the device may be lost."""


class Pointer(NamedTuple):
    """A buffer and its element offset, given at each call as a tensor's `data_ptr()` (0: null)."""

    item_bytes: int


class Varying(NamedTuple):
    """A number that is given at each call."""

    type: Literal["int", "long", "float"]


Argument = Pointer | Varying | np.generic
"""What a kernel takes, in order; a numpy scalar is set once and for all."""

MOST_LAUNCHES = 2048
"""LRU bound of launches that an operator's module remembers, by the sizes of what it was called
with. To prepare one again takes some 50 us."""
KINDS = {"pointer": 0, "int": 1, "long": 2, "float": 3, "const pointer": 4}


class Prepared:
    """Something of the shim that takes values and enqueues; call it with those, in order.

    `words` says how they travel: a letter of `struct` each.
    """

    __slots__ = ("__weakref__", "_enqueue", "_pack", "handle", "words")

    def __init__(self, handle: int, words: str) -> None:
        self.words = words
        self.handle = handle
        self._enqueue, delete = _entries()
        self._pack = _packed_as(words)
        weakref.finalize(self, delete, handle).atexit = False

    def __call__(self, *values: float) -> None:
        """Enqueue with `values`: a `data_ptr()` per `Pointer`, a number per `Varying`.

        Returns before anything has run. Safe to call from any thread.

        Raises:
            LaunchError: a pointer is not memory of this device.
            RefusedError: the runtime refused; the message carries kernel, sizes and OpenCL's name
                of the error.
            torch.OutOfMemoryError: the driver found no memory, even with an emptied cache.
        """
        try:
            words = self._pack(*values)
        except struct.error:
            words = self._pack(*map(_wrapped, values))
        status = self._enqueue(self.handle, words)
        if status:
            raise error(status)


@lru_cache(maxsize=1024)
def _packed_as(words: str) -> Callable[..., bytes]:
    """Return what packs values: most launches of a process share theirs, of 0.1 KiB and more."""
    return struct.Struct(words).pack


def _wrapped(value: float) -> float:
    """Return an integer modulo 2^64, as a C `long` takes it; numbers as large are rare."""
    return (value + 2**63) % 2**64 - 2**63 if isinstance(value, int) else value


class KernelLaunch(Prepared):
    """A kernel with everything set that does not change; call it with what does, in order.

    While its program is built it has a `number` of `pending`, else 0. Calls then wait in order.
    """

    __slots__ = ("number",)

    def __init__(self, handle: int, changing: Sequence[Pointer | Varying], number: int = 0) -> None:
        super().__init__(handle, "".join(map(_word, changing)))
        self.number = number


class Part(NamedTuple):
    """A launch of several, and which of their values and workspaces it takes, in order."""

    launch: KernelLaunch
    places: tuple[int, ...]


class LaunchSequence(Prepared):
    """Launches one behind the other; call it with the values that they take together.

    Behind those come integers that are `fixed`, then workspaces, whose sizes are in bytes. They are
    taken from the caching allocator and return to it at once: the queue is in order. What the first
    `of_weights` launches write to workspaces depends on their values' memory alone: where no
    gradient is recorded it is kept, until something is written to that memory.
    """

    __slots__ = ()

    def __init__(
        self,
        device: int,
        parts: Sequence[Part],
        values: int,
        workspaces: Sequence[int] = (),
        fixed: Sequence[int] = (),
        of_weights: int = 0,
    ) -> None:
        words = ["q"] * values
        for launch, places in parts:
            for word, place in zip(launch.words, places, strict=True):
                if place < values:
                    words[place] = word
        handle = _new_sequence(device, parts, values, workspaces, fixed, of_weights)
        super().__init__(handle, "".join(words))

    @property
    def runs(self) -> int:
        """How often it was enqueued: by Python, and by the shim for calls that it recalls."""
        count = shim.library().ocl_sequence_runs
        count.restype = ctypes.c_int64
        runs: int = count(ctypes.c_void_p(self.handle))
        return runs

    def complete_by(self, complete: Callable[[], None]) -> None:
        """Let `complete` make all launches ready at once, or `replace` the sequence.

        To be called before the sequence is.
        """
        pending.when_needed(number := pending.new_number(), complete)
        shim.library().ocl_sequence_await(ctypes.c_void_p(self.handle), ctypes.c_int64(number))

    def otherwise(self, other: LaunchSequence) -> None:
        """Let `other`, which takes the same values, run where nothing is kept of the weights.

        That is where gradients are recorded, where there is no room, and in the first calls. To be
        called before the sequence is.
        """
        otherwise = shim.library().ocl_sequence_otherwise
        otherwise(ctypes.c_void_p(self.handle), ctypes.c_void_p(other.handle))

    def replace(self, other: LaunchSequence) -> None:
        """Let `other`, which takes the same values, run in place of this from now on."""
        replace = shim.library().ocl_sequence_replace
        replace(ctypes.c_void_p(self.handle), ctypes.c_void_p(other.handle))


def check_on_device(device: int, what: str) -> None:
    """Refuse -1, torch's index of the CPU, where `what` is to run on a device.

    Raises:
        LaunchError: it is that.
    """
    if device < 0:
        raise LaunchError(f"{what}: a tensor lies on the CPU. Move it to the device first")


def prepare(
    device: int,
    source: str,
    kernel: str,
    global_size: Sequence[int],
    arguments: Sequence[Argument],
    local_size: Sequence[int] | None = None,
) -> KernelLaunch:
    """Build a kernel and set its unchanging arguments. Building is cached by text.

    What was never built before is built while the caller goes on: calls of the launch wait for it
    in order, and what is raised for the program is raised by the next call that needs a value.

    Args:
        device: its index.
        source: the OpenCL C.
        kernel: its name in `source`.
        global_size: work-items along one to three dimensions.
        arguments: in the kernel's order; a `Pointer` stands for two, address and offset.
        local_size: work-items of a group; None: the runtime chooses.

    Raises:
        BuildError: the compiler refused the text.
        LaunchError: the text has no such kernel, an argument does not fit it, `device` is -1,
            torch's index of the CPU, or a profile's device refuses the sizes.
    """
    check_on_device(device, kernel)
    target = devices()[device]
    target.check_launch(kernel, global_size, local_size)
    program = target.ahead.find(source)
    count, changing, fixed = _places(arguments)
    is_built = not isinstance(program, Future)
    built = kernel_of(program, kernel, count) if is_built else None
    number = 0 if is_built else pending.new_number()
    handle = _new_launch(
        device, built, number, kernel, global_size, local_size, changing, fixed,
        are_const(source, kernel),
    )  # fmt: skip
    launch = KernelLaunch(handle, [argument for _, argument in changing], number)
    if not is_built:
        pending.when_needed(number, partial(_complete, launch, target, program, kernel, count))
    return launch


def _places(
    arguments: Sequence[Argument],
) -> tuple[int, list[tuple[int, Pointer | Varying]], list[tuple[int, np.generic]]]:
    """Return how many arguments a kernel takes, and the places of those that change or do not."""
    changing: list[tuple[int, Pointer | Varying]] = []
    fixed: list[tuple[int, np.generic]] = []
    index = 0
    for argument in arguments:
        if isinstance(argument, Pointer | Varying):
            changing.append((index, argument))
        else:
            fixed.append((index, argument))
        index += 2 if isinstance(argument, Pointer) else 1
    return index, changing, fixed


def _complete(
    launch: KernelLaunch, device: Device, future: Future[Any], kernel: str, arguments: int
) -> None:
    """Give `launch` its kernel, once the program is built."""
    try:
        built = kernel_of(pending.program_of(device, future), kernel, arguments)
    except BuildError as error:
        raise BuildError(f"kernel {kernel}: {error}") from error
    complete = shim.library().ocl_launch_complete
    if complete(ctypes.c_void_p(launch.handle), ctypes.c_void_p(built.handle)):
        raise LaunchError(shim.last_error())


def wait_for_programs() -> None:
    """Enqueue what waits for its program to be built, on every device.

    Raises:
        LaunchError, torch.OutOfMemoryError, BuildError: of the first launch that failed; it is left
            out, what waits behind it waits on.
    """
    for index in range(len(devices())):
        if status := shim.library().ocl_wait_for_programs(ctypes.c_int(index)):
            raise error(status)


def _word(argument: Pointer | Varying) -> str:
    return "d" if argument == Varying("float") else "q"


def _new_launch(
    device: int,
    built: Kernel | None,
    number: int,
    name: str,
    global_size: Sequence[int],
    local_size: Sequence[int] | None,
    changing: Sequence[tuple[int, Pointer | Varying]],
    fixed: Sequence[tuple[int, np.generic]],
    consts: Sequence[bool],
) -> int:
    create = shim.library().ocl_launch_new
    create.restype = ctypes.c_void_p
    kinds = [KINDS["pointer" if isinstance(a, Pointer) else a.type] for _, a in changing]
    pointers = [place for place, kind in enumerate(kinds) if kind == KINDS["pointer"]]
    if len(consts) == len(pointers):  # else nothing is known of them
        for place, is_const in zip(pointers, consts, strict=True):
            kinds[place] = KINDS["const pointer"] if is_const else KINDS["pointer"]
    sizes = [a.item_bytes if isinstance(a, Pointer) else 0 for _, a in changing]
    handle: int | None = create(
        ctypes.c_int(device),
        ctypes.c_void_p(None if built is None else built.handle),
        ctypes.c_int64(number),
        name.encode(),
        ctypes.c_uint32(len(global_size)),
        _array(ctypes.c_size_t, global_size),
        None if local_size is None else _array(ctypes.c_size_t, local_size),
        ctypes.c_uint32(len(changing)),
        _array(ctypes.c_int32, kinds),
        _array(ctypes.c_int32, [index for index, _ in changing]),
        _array(ctypes.c_int32, sizes),
        ctypes.c_uint32(len(fixed)),
        _array(ctypes.c_uint32, [index for index, _ in fixed]),
        _array(ctypes.c_uint32, [value.nbytes for _, value in fixed]),
        b"".join(value.tobytes().ljust(8, b"\0") for _, value in fixed),
    )
    if handle is None:
        raise LaunchError(shim.last_error())
    return handle


def _new_sequence(
    device: int,
    parts: Sequence[Part],
    values: int,
    workspaces: Sequence[int],
    fixed: Sequence[int],
    of_weights: int,
) -> int:
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
        _array(ctypes.c_void_p, [part.launch.handle for part in parts]),
        _array(ctypes.c_uint32, [len(part.places) for part in parts]),
        _array(ctypes.c_uint32, [place for part in parts for place in part.places]),
        ctypes.c_uint32(of_weights),
    )
    return handle


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * len(values))(*values)


@cache
def _entries() -> tuple[Callable[[int, bytes], int], Callable[[int], None]]:
    """Return the shim's functions that enqueue what is prepared, and delete it.

    ctypes passes one packed argument faster than one for each word.
    """
    enqueue, delete = shim.library()["ocl_enqueue"], shim.library()["ocl_delete"]
    enqueue.argtypes, delete.argtypes = [ctypes.c_void_p, ctypes.c_char_p], [ctypes.c_void_p]
    return enqueue, delete


class Failure(NamedTuple):
    """A status of the shim: the exceptions that are told as it, and the one it is raised as."""

    status: int
    told: type[BaseException]
    raised: type[BaseException]


FAILED = 1
FAILURES = (
    Failure(2, torch.OutOfMemoryError, torch.OutOfMemoryError),
    Failure(3, torch.AcceleratorError, RefusedError),
    Failure(4, KeyboardInterrupt, KeyboardInterrupt),
    Failure(FAILED, BaseException, LaunchError),
)
"""Every status but 0, the first that fits: the device has no memory, refused, or anything else."""
KEPT = 16
"""Added to a status if the exception is kept here."""
_kept = local()


def keep(error: BaseException) -> int:
    """Keep what a callback of the shim ends with, for this thread; return its status."""
    _kept.error = error
    text = "\n".join([str(error) or repr(error), *getattr(error, "__notes__", ())])
    shim.library().ocl_python_failed(text.encode())
    return KEPT + next(row.status for row in FAILURES if isinstance(error, row.told))


def error(status: int) -> BaseException:
    """Return what the shim failed with."""
    text = shim.last_error()
    if status >= KEPT:
        kept: BaseException = _kept.__dict__.pop("error")
        kept.add_note(text.rpartition("\n")[2])
        return kept
    return next(row.raised for row in FAILURES if row.status == status)(text)
