"""Prepared launches: build and set a kernel once, then call it with data pointers only.

It runs kernels and generated plans on torch's memory; what to run is decided elsewhere.

    double = prepare(0, SOURCE, "double_all", (n,), [Pointer(4), Pointer(4), np.int64(n)])
    double(x.data_ptr(), out.data_ptr())

Every `Pointer` is two arguments of the kernel, as in `oclgen.plan`: `__global T *x, long x_offset`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from oclgen import plan as plans
from oclgen.device import SCALAR_TYPES, LaunchError, devices

import pyopencl as cl  # isort: skip

from ocl_backend import shim
from ocl_backend.held import pending, settle

OUT_OF_MEMORY, REFUSED = 2, 3
"""The shim's statuses for a device without memory and one that takes no kernel; any other but 0
stands for arguments that are wrong."""


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

KINDS = {"int": 1, "long": 2, "float": 3}
C_TYPES: dict[str, type[ctypes.c_int64 | ctypes.c_double]] = {
    "int": ctypes.c_int64,
    "long": ctypes.c_int64,
    "float": ctypes.c_double,
}


class Launch:
    """A kernel with everything set that does not change; call it with what does, in order."""

    __slots__ = ("__weakref__", "_call", "_handle", "_kernel")

    def __init__(self, call: Callable[..., int], handle: int, kernel: Any) -> None:
        self._call = call
        self._handle = handle
        self._kernel = kernel  # the shim borrows it
        delete = shim.library()["ocl_launch_delete"]
        delete.argtypes = [ctypes.c_void_p]
        weakref.finalize(self, delete, handle).atexit = False

    def __call__(self, *values: float) -> None:
        """Enqueue the kernel with `values`: a `data_ptr()` per `Pointer`, a number per `Varying`.

        Returns before the kernel has run. Safe to call from any thread.

        Raises:
            LaunchError: a pointer is not memory of this device.
            RefusedError: the runtime refused; the message carries kernel, sizes and OpenCL's name
                of the error.
            torch.OutOfMemoryError: the driver found no memory, even with an emptied cache.
        """
        if pending:
            settle()
        status = self._call(self._handle, *values)
        if status:
            raise _error(status)


def prepare(
    device: int,
    source: str,
    kernel: str,
    global_size: Sequence[int],
    arguments: Sequence[Argument],
    local_size: Sequence[int] | None = None,
) -> Launch:
    """Build `kernel` of `source` for device `device` and set its unchanging arguments.

    Sizes are in work-items; without `local_size` the runtime chooses. Building is cached by text.

    Raises:
        BuildError: the compiler refused the text.
        LaunchError: the text has no such kernel, an argument does not fit it, or `device` is -1,
            torch's index of the CPU.
    """
    if device < 0:
        raise LaunchError(f"kernel {kernel}: a tensor lies on the CPU. Move it to the device first")
    built = _kernel(devices()[device].build(source), kernel)
    changing: list[tuple[int, Pointer | Varying]] = []
    index = 0
    for argument in arguments:
        if isinstance(argument, Pointer | Varying):
            changing.append((index, argument))
        else:
            _set_fixed(built, kernel, index, argument)
        index += 2 if isinstance(argument, Pointer) else 1
    if index != built.num_args:
        raise LaunchError(
            f"kernel {kernel} takes {built.num_args} arguments, {index} were described "
            "(a pointer counts for two: buffer and element offset)"
        )
    handle = _new(device, built, kernel, global_size, local_size, changing)
    return Launch(_entry(tuple(argument for _, argument in changing)), handle, built)


def _picker(order: tuple[int, ...]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return the function that takes the items at `order`, of a tuple; the fastest there is."""
    if len(order) == 1:
        return itemgetter(slice(order[0], order[0] + 1))
    return itemgetter(*order)


Step = tuple[Launch, tuple[int, ...]]
"""A launch, and which of a plan's roles and workspaces it takes."""


class PreparedPlan:
    """A generated plan whose launches are prepared; call it with the data pointers of its roles."""

    __slots__ = (
        "__weakref__", "_all", "_counters", "_device", "_of_weights", "_steps", "_workspaces",
    )  # fmt: skip

    def __init__(
        self,
        device: int,
        of_weights: Sequence[Step],
        steps: Sequence[Step],
        workspaces: Sequence[int],
        counters: Sequence[torch.Tensor] = (),
    ) -> None:
        self._device = torch.device("ocl", device)
        self._of_weights = tuple(of_weights)
        self._steps = [(launch, _picker(order)) for launch, order in steps]
        self._all = [(launch, _picker(order)) for launch, order in of_weights] + self._steps
        self._workspaces = tuple(workspaces)
        self._counters = tuple(counters)

    def __call__(self, *pointers: int) -> None:
        """Enqueue every launch; `pointers` follow the `roles` given to `prepare_plan`.

        Workspaces come from the caching allocator and return to it at once: the queue is in order.

        Raises:
            LaunchError: as `Launch`.
            torch.OutOfMemoryError: there is no room for a workspace.
        """
        spaces = [
            torch.empty(size, dtype=torch.uint8, device=self._device) for size in self._workspaces
        ]
        spaces += self._counters
        given = (*pointers, *[space.data_ptr() for space in spaces])
        for launch, pick in self._all:
            launch(*pick(given))

    def make_of_weights(self, *pointers: int) -> dict[int, torch.Tensor]:
        """Enqueue what depends on the weights alone; return the workspaces it fills, by place.

        Raises:
            LaunchError, torch.OutOfMemoryError: as a call.
        """
        count = len(pointers)
        places = {at - count for _, order in self._of_weights for at in order if at >= count}
        made = {
            at: torch.empty(self._workspaces[at], dtype=torch.uint8, device=self._device)
            for at in places
        }
        given = {count + at: space.data_ptr() for at, space in made.items()}
        given |= dict(enumerate(pointers))
        for launch, order in self._of_weights:
            launch(*[given[position] for position in order])
        return made

    def run_rest(self, made: Mapping[int, torch.Tensor], *pointers: int) -> None:
        """Enqueue the other launches, on what `make_of_weights` returned.

        Raises:
            LaunchError, torch.OutOfMemoryError: as a call.
        """
        spaces = [
            made[at] if at in made
            else torch.empty(size, dtype=torch.uint8, device=self._device)
            for at, size in enumerate(self._workspaces)
        ]  # fmt: skip
        spaces += self._counters
        given = (*pointers, *[space.data_ptr() for space in spaces])
        for launch, pick in self._steps:
            launch(*pick(given))


def prepare_plan(
    device: int,
    plan: plans.Plan,
    roles: Sequence[str],
    item_bytes: Mapping[str, int] | int = 4,
    scalars: Mapping[str, int | float] | None = None,
) -> PreparedPlan:
    """Prepare every launch of `plan` on device `device`; calls pass pointers in order of `roles`.

    `item_bytes` is the item size of each role's tensor (an int: of all); `scalars` replace named
    scalars of the plan.

    Raises:
        BuildError: the compiler refused a program.
        LaunchError: an argument does not fit, or the plan wants a role that is not in `roles`.
    """
    known = (*roles, *(role for role, _ in plan.workspaces), plans.COUNTERS)
    of_weights: list[Step] = []
    steps: list[Step] = []
    for step in plan.launches:
        wanted = [arg.role for arg in step.args if isinstance(arg, plans.Buffer)]
        if missing := sorted(set(wanted) - set(known)):
            raise LaunchError(f"kernel {step.kernel} wants {missing}; given are {list(known)}")
        arguments = _plan_arguments(step, item_bytes, scalars or {})
        launch = prepare(
            device, step.source, step.kernel, step.global_size, arguments, step.local_size
        )
        order = tuple(known.index(role) for role in wanted)
        (of_weights if step.of_weights else steps).append((launch, order))
    sizes = [size for _, size in plan.workspaces]
    counters = [_counters(device, plan.counters)] if plan.counters else []
    return PreparedPlan(device, of_weights, steps, sizes, counters)


_zeros: dict[int, torch.Tensor] = {}


def _counters(device: int, count: int) -> torch.Tensor:
    """Return at least `count` ints that are zero between launches; a device's plans share them."""
    known = _zeros.get(device)
    if known is None or known.numel() < count:
        place = torch.device("ocl", device)
        known = _zeros[device] = torch.zeros(count, dtype=torch.int32, device=place)
    return known


def _plan_arguments(
    step: plans.Launch, item_bytes: Mapping[str, int] | int, scalars: Mapping[str, int | float]
) -> list[Argument]:
    arguments: list[Argument] = []
    for arg in step.args:
        if isinstance(arg, plans.Buffer):
            size = item_bytes if isinstance(item_bytes, int) else item_bytes.get(arg.role, 1)
            arguments.append(Pointer(size))
        elif isinstance(arg, plans.Scalar):
            arguments.append(SCALAR_TYPES[arg.type](scalars.get(arg.name, arg.value)))
        # an Offset follows its Buffer and belongs to the Pointer
    return arguments


def _kernel(program: Any, name: str) -> Any:
    try:
        return cl.Kernel(program, name)
    except cl.Error as error:
        raise LaunchError(
            f"kernel {name}: {error}. The program has no kernel of that name, or it is the name "
            "of an OpenCL built-in, which some runtimes refuse."
        ) from error


def _set_fixed(built: Any, kernel: str, index: int, value: np.generic) -> None:
    try:
        built.set_arg(index, value)
    except cl.Error as error:
        raise LaunchError(f"kernel {kernel}, argument {index} = {value!r}: {error}") from error


def _new(
    device: int,
    built: Any,
    name: str,
    global_size: Sequence[int],
    local_size: Sequence[int] | None,
    changing: Sequence[tuple[int, Pointer | Varying]],
) -> int:
    def array(kind: Any, values: Sequence[int]) -> Any:
        return (kind * len(values))(*values)

    create = shim.library().ocl_launch_new
    create.restype = ctypes.c_void_p
    kinds = [0 if isinstance(a, Pointer) else KINDS[a.type] for _, a in changing]
    sizes = [a.item_bytes if isinstance(a, Pointer) else 0 for _, a in changing]
    handle: int = create(
        ctypes.c_int(device),
        ctypes.c_void_p(built.int_ptr),
        name.encode(),
        ctypes.c_uint32(len(global_size)),
        array(ctypes.c_size_t, global_size),
        None if local_size is None else array(ctypes.c_size_t, local_size),
        ctypes.c_uint32(len(changing)),
        array(ctypes.c_int32, kinds),
        array(ctypes.c_int32, [index for index, _ in changing]),
        array(ctypes.c_int32, sizes),
    )
    return handle


@cache
def _entry(signature: tuple[Pointer | Varying, ...]) -> Callable[..., int]:
    """Return the variadic C entry point with its argument types spelled out.

    The platforms' calling conventions pass variadic integers and doubles as they pass named ones
    (System V x86-64, AAPCS64 on Linux), so one C function serves every signature.
    """
    types = [ctypes.c_int64 if isinstance(a, Pointer) else C_TYPES[a.type] for a in signature]
    entry = shim.library()["ocl_launch"]
    entry.argtypes = [ctypes.c_void_p, *types]
    return entry


def _error(status: int) -> Exception:
    last_error = shim.library().ocl_last_error
    last_error.restype = ctypes.c_char_p
    text = last_error().decode()
    errors = {OUT_OF_MEMORY: torch.OutOfMemoryError, REFUSED: RefusedError}
    return errors.get(status, LaunchError)(text)
