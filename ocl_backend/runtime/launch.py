"""Prepared launches: build and set a kernel once, then call it with data pointers only.

It runs kernels, one or several, on torch's memory; what to run is decided elsewhere.

    double = prepare(0, SOURCE, "double_all", (n,), [Pointer(4), Pointer(4), np.int64(n)])
    double(x.data_ptr(), out.data_ptr())

Every `Pointer` is two arguments of the kernel, as in `oclgen.plan`: `__global T *x, long x_offset`.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from threading import local
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ocl_backend.runtime import handles, pending, shim
from ocl_backend.runtime.kernel import are_const, kernel_of
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
"""LRU bound of launches of an operator's module, by sizes. A step of three linear layers has eight
products, so 400 sizes have 3200: with 512 known sizes took 1.4 times as long."""
KINDS = {"pointer": 0, "int": 1, "long": 2, "float": 3, "const pointer": 4}


class Prepared:
    """Something of the shim that takes values and enqueues; call it with those, in order.

    `words` says how they travel: a letter of `struct` each.
    """

    __slots__ = ("__weakref__", "_delete", "_enqueue", "_pack", "handle", "words")

    def __init__(self, handle: int, words: str) -> None:
        self.words = sys.intern(words)
        self.handle = handle
        self._enqueue, self._delete = handles.entries()
        self._pack = _packed_as(words)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Let go of it: recalled calls may keep it alive. A `finalize` would take 0.5 KiB."""
        if not is_ending() and (delete := getattr(self, "_delete", None)) is not None:
            delete(self.handle)

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

    def __init__(self, handle: int, words: str, number: int = 0) -> None:
        super().__init__(handle, words)
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
        given = [(launch.handle, places) for launch, places in parts]
        handle = handles.new_sequence(device, given, values, workspaces, fixed, of_weights)
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
    kinds = tuple([a if isinstance(a, Pointer | Varying) else type(a) for a in arguments])
    form = device, source, kernel, len(global_size), local_size is None, kinds
    try:
        pattern = _pattern(target, form)
    except _UnbuiltError as unbuilt:
        number = pending.new_number()
        return _made(form, unbuilt.args[0], number, global_size, arguments, local_size)
    return pattern.launch(global_size, local_size, arguments)


Taken = Pointer | Varying | type[np.generic]
Form = tuple[int, str, str, int, bool, tuple[Taken, ...]]
"""Device, source, kernel, dimensions, whether the runtime chooses local sizes, what it takes."""


class _Pattern:
    """What launches of one form are copied from: those of many sizes differ in numbers alone."""

    __slots__ = ("_handle", "_pack", "_places", "_words")

    def __init__(self, launch: KernelLaunch, form: Form) -> None:
        *_, dimensions, is_free, kinds = form
        self._handle, self._words = launch, launch.words
        self._places = [i for i, kind in enumerate(kinds) if isinstance(kind, type)]
        fixed = "".join(_code(kind) for kind in kinds if isinstance(kind, type))
        self._pack = struct.Struct(f"={dimensions * (1 if is_free else 2)}q{fixed}").pack

    def launch(
        self, sizes: Sequence[int], local: Sequence[int] | None, arguments: Sequence[Argument]
    ) -> KernelLaunch:
        """Return the launch with these sizes and arguments."""
        fixed = [arguments[place] for place in self._places]
        words = self._pack(*sizes, *(local or ()), *fixed)
        return KernelLaunch(handles.launch_like(self._handle.handle, words), self._words)


class _UnbuiltError(Exception):
    """The program is being built; its future is the only argument."""


def _code(kind: type[np.generic]) -> str:
    """Return what `struct` calls a number of a kernel, filled up to eight bytes."""
    dtype = np.dtype(kind)
    letter = {"l": "q", "L": "Q"}.get(dtype.char, dtype.char)
    return f"{letter}{8 - dtype.itemsize}x"


@lru_cache(maxsize=1024)
def _pattern(target: Device, form: Form) -> _Pattern:
    """Return the pattern of a form; raise `_UnbuiltError` while its program is being built."""
    _, source, _, dimensions, is_free, kinds = form
    program = target.ahead.find(source)
    if isinstance(program, Future):
        raise _UnbuiltError(program)
    arguments = [kind if isinstance(kind, Pointer | Varying) else kind(0) for kind in kinds]
    ones = (1,) * dimensions
    return _Pattern(_made(form, program, 0, ones, arguments, None if is_free else ones), form)


def _made(
    form: Form,
    program: Any,
    number: int,
    global_size: Sequence[int],
    arguments: Sequence[Argument],
    local_size: Sequence[int] | None,
) -> KernelLaunch:
    """Return a new launch; without a program, which has this number, it waits for it."""
    device, source, kernel, *_ = form
    count, changing, fixed = _places(arguments)
    built = None if number else kernel_of(program, kernel, count)  # lives until the launch has it
    known = built.handle if built else None, number, kernel
    told = _told(changing, source, kernel)
    handle = handles.new_launch(device, *known, global_size, local_size, *told, fixed)
    launch = KernelLaunch(handle, "".join(_word(each) for _, each in changing), number)
    if number:
        ready = partial(_complete, launch, devices()[device], program, kernel, count)
        pending.when_needed(number, ready)
    return launch


def _told(
    changing: Sequence[tuple[int, Pointer | Varying]], source: str, kernel: str
) -> tuple[list[int], list[int], list[int]]:
    """Return kinds, places and bytes of items of arguments that change, for the shim."""
    kinds = [KINDS["pointer" if isinstance(a, Pointer) else a.type] for _, a in changing]
    pointers = [place for place, kind in enumerate(kinds) if kind == KINDS["pointer"]]
    consts = are_const(source, kernel)
    if len(consts) == len(pointers):  # else nothing is known of them
        for place, is_const in zip(pointers, consts, strict=True):
            kinds[place] = KINDS["const pointer"] if is_const else KINDS["pointer"]
    sizes = [a.item_bytes if isinstance(a, Pointer) else 0 for _, a in changing]
    return kinds, [index for index, _ in changing], sizes


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
