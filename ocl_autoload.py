"""Makes torch know the name `ocl` without an import of `ocl_backend`: torch calls `load` last.

Devices and operators are left to `ocl_backend.opened`, which the first use of a device imports.
"""

from __future__ import annotations

import ctypes
import gc
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from threading import current_thread, main_thread
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.utils import backend_registration

library: ctypes.PyDLL | None = None
"""The shim once it is registered with torch, by `load` or by `ocl_backend`."""

seed: int | None = None
"""What `torch.manual_seed` was given before the devices were open."""

OK, FAILED, INTERRUPTED = 0, 1, 4
"""Statuses of the shim (csrc/runtime/status.h)."""


class Question(NamedTuple):
    """A function of a library that asks torch for CUDA and goes on with the CPU in silence."""

    library: str
    function: str
    told: str
    """The function's variable that names a device if the program named one."""
    text: str
    """What to do."""


QUESTIONS = {
    "device_count": [
        Question(
            "accelerate",
            "get_max_memory",
            "max_memory",
            'a model with device_map="auto" computes on the CPU though there is an OpenCL device: '
            'say device_map="ocl", or how much memory it has, max_memory={0: "8GB"}',
        ),
    ],
    "is_available": [
        Question(
            "sentence_transformers",
            "get_device_name",
            "",
            "sentence-transformers computes on the CPU though there is an OpenCL device: say "
            'device="ocl"',
        ),
        Question(
            "ultralytics",
            "select_device",
            "device",
            "ultralytics computes on the CPU though there is an OpenCL device: say "
            'device=torch.device("ocl")',
        ),
    ],
}
"""By the function of `torch.cuda` that is asked."""

_are_open = False
"""Whether the devices are open, and what opens them has nothing to do."""

is_imported = False
"""Whether the program itself imported `ocl_backend`, and wants to know which devices there are."""


def load() -> None:
    """Announce the device if its shim is known from before; the entry point of torch.

    Nothing happens where torch can reach an accelerator of its own, since torch serves one at a
    time, nor where anything is amiss: `import ocl_backend` says what.
    """
    with suppress(Exception):
        if not _has_other_accelerator():
            announce_known()


def _has_other_accelerator() -> bool:
    """Whether torch is built for another vendor's devices, and their driver is on this machine.

    PyPI's torch is a CUDA build on Linux, also where no NVIDIA GPU is. To ask torch itself would
    open the driver, which takes a second and forbids to fork.
    """
    if torch.version.cuda:
        return _is_loadable("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    if torch.version.hip:
        return Path("/dev/kfd").exists()
    return bool(torch.version.xpu)


def _is_loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def announce_known() -> bool:
    """Announce the device as it was found before, for its first use to open; say if it was.

    Raises:
        RuntimeError: another backend has already taken torch's slot for private devices.
    """
    if library is None and (found := _known()) is not None:
        shim, count = found
        announce(shim, _Closed("torch.ocl"))
        shim.ocl_open_later(_opener, ctypes.c_int(count))
    return library is not None


def lightning_callbacks() -> list[Any]:
    """Return what warns of a Trainer on the CPU beside a device; Lightning's entry point.

    As Lightning does of CUDA, it warns of a Trainer that was told to take the CPU, too.
    """
    name = "lightning.pytorch" if "lightning.pytorch" in sys.modules else "pytorch_lightning"
    return [] if library is None else [_notice_for(name)]


def _notice_for(package: str) -> Any:
    base = import_module(f"{package}.callbacks").Callback
    parts = {"setup": _tell, "__reduce__": lambda _self: (_notice_for, (package,))}
    return type("DeviceNotice", (base,), parts)()


def _tell(_self: Any, trainer: Any, pl_module: Any, stage: str) -> None:
    if trainer.strategy.root_device.type == "cpu" and torch.get_device_module("ocl").is_available():
        warnings.warn(
            "Lightning computes on the CPU though there is an OpenCL device: import "
            'ocl_backend.libraries.lightning, then Trainer(accelerator="ocl", strategy="ocl")',
            stacklevel=2,
        )


def tell_of_accelerate() -> None:
    """Warn of an Accelerator that took the CPU without being told to, by its list of devices."""
    accelerate: Any = sys.modules.get("accelerate.state")
    if accelerate is None or not accelerate.is_initialized():
        return
    state = accelerate.AcceleratorState()
    if state.device.type == "cpu" and not getattr(state, "_cpu", False):
        warnings.warn(
            "accelerate computes on the CPU though there is an OpenCL device: import "
            "ocl_backend.libraries.accelerate first, or set ACCELERATE_TORCH_DEVICE=ocl",
            stacklevel=3,
        )


def _hear_questions() -> None:
    """Let questions for CUDA warn where a library takes the CPU after them, of `QUESTIONS`.

    Libraries with a list of devices ask for CUDA, keep silent where there is none, and their
    functions are their own: what torch tells them is not.
    """
    for name, questions in QUESTIONS.items():
        vars(torch.cuda)[name] = _heard(getattr(torch.cuda, name), questions)


def _heard(function: Callable[[], int], questions: Sequence[Question]) -> Callable[[], int]:
    @wraps(function)
    def ask() -> int:
        if found := function():
            return found
        caller = sys._getframe(1)
        library = caller.f_globals.get("__name__", "").partition(".")[0]
        for question in questions:
            asks = (library, caller.f_code.co_name) == (question.library, question.function)
            if asks and not caller.f_locals.get(question.told):
                warnings.warn(question.text, stacklevel=3)
        return found

    return ask


def _known() -> tuple[ctypes.PyDLL, int] | None:
    """Return the shim of `remember` and the number of devices, None where its sources changed."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(_stamp().read_text(encoding="utf-8"))
        if all(_state(path) == state for path, state in known["sources"]):
            return ctypes.PyDLL(known["library"]), int(known["devices"])
    return None


def remember(shim: Path, sources: list[Path], devices: int) -> None:
    """Write down for `load` where the compiled shim lies, and from which sources it was made.

    Args:
        shim: the library.
        sources: the files by whose sizes and times a change is noticed; a new one, by its folder's.
        devices: how many there are.
    """
    from oclgen.files import write_atomically

    places = [*sources, *sorted({path.parent for path in sources})]
    known = {
        "library": str(shim),
        "sources": [(str(path), _state(path)) for path in places],
        "devices": devices,
    }
    with suppress(OSError):  # a cache that cannot be written costs convenience only
        text = json.dumps(known)
        if not _stamp().exists() or _stamp().read_bytes() != text.encode():
            write_atomically(_stamp(), text)


def announce(shim: ctypes.PyDLL, module: ModuleType) -> None:
    """Register the name, the shim and `torch.ocl` with torch; again, fill the module only.

    Raises:
        RuntimeError: another backend has already taken torch's slot for private devices.
    """
    global library
    if library is None:
        backend_registration.rename_privateuse1_backend("ocl")
        shim.ocl_register()
        interrupt = ctypes.c_void_p(id(KeyboardInterrupt))
        shim.ocl_interrupt_with(ctypes.pythonapi.PyErr_SetInterrupt, interrupt)
        library = shim
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
        register_module: Any = torch._register_device_module
        register_module("ocl", module)
        _stand_in_for_torchvision()
        _hear_questions()
        if torch.distributed.is_available() and torch.distributed.is_gloo_available():
            torch.distributed.Backend.register_backend("ocl", _group, devices=["ocl"])
    else:  # torch has handed the first one out and remembers it
        vars(torch.get_device_module("ocl")).update(vars(module))


class _Closed(ModuleType):
    """`torch.ocl` before its devices are open; opens them unless a program on the CPU asks too.

    Adam's step asks whether an accelerator is available, autocast for its dtypes, and
    `torch.manual_seed` seeds it.
    """

    _initialized = False

    def __getattr__(self, name: str) -> Any:
        # inspect and doctest walk through sys.modules and ask every module for names with "__"
        if not name.startswith("__") or name == "__all__":
            _import_opened()  # fills this module
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"module 'torch.ocl' has no attribute {name!r}")

    def _lazy_init(self) -> None:
        """Open the devices; torch calls it before it makes the first tensor."""
        # without this method torch asks for it by a function that drops interrupts
        try:
            _import_opened()
        except Exception as error:
            raise RuntimeError(_told(error)) from error

    def __dir__(self) -> list[str]:
        return sorted(("__all__", *self.__all__))

    def is_available(self) -> bool:
        # Adam's step asks, also of programs that only import torch
        if is_imported:
            return bool(self.__getattr__("is_available")())
        tell_of_accelerate()
        return True

    def is_initialized(self) -> bool:
        return False

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def manual_seed_all(self, number: int) -> None:
        global seed
        seed = number


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let the garbage collector rest: what is made within the context stays until the end.

    Else the 50,000 new objects let it look through all of torch's, which takes 0.1 to 0.2 s. So
    they join the oldest ones, as if they had been looked through.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # a program's own frozen objects stay frozen
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()


def _import_opened() -> None:
    """Open the devices, whole: torch takes an operator once, so that half of them is no state.

    An interrupt waits for the end: less than a second, and longer where runtimes are tried anew.
    torch asks `torch.ocl` for names that it lacks, for each storage that it loads: nothing is done
    for them once the devices are open.
    """
    global _are_open
    if _are_open:
        return
    met: list[int] = []
    in_main = current_thread() is main_thread()
    handler = signal.getsignal(signal.SIGINT) if in_main else None
    if handler is not None:  # None is also one that was not set from Python
        signal.signal(signal.SIGINT, lambda number, _frame: met.append(number))
    try:
        with _uncollected():
            from ocl_backend import opened  # noqa: F401
        _are_open = True
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    if met:
        signal.raise_signal(signal.SIGINT)


def _open() -> None:
    assert library is not None
    try:
        library.ocl_set_opening_status(OK, b"")
        _import_opened()
    except BaseException as error:  # it has no way through the shim but as a status and text
        status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
        library.ocl_set_opening_status(status, _told(error).encode())


def _told(error: BaseException) -> str:
    return f"the ocl device cannot be opened: {str(error) or type(error).__name__}"


_opener = ctypes.CFUNCTYPE(None)(_open)
"""The shim calls it at the first use of a device."""


def _group(*arguments: Any) -> torch.distributed.ProcessGroup:
    from ocl_backend import distributed

    return distributed.create(*arguments)


def _stand_in_for_torchvision() -> None:
    """Let `import torchvision` succeed where its library is of another build of torch.

    It asks torch to load the library; what is not loaded is declared and served by `ocl_backend`.
    """
    load: Any = torch.ops.load_library

    def load_library(path: Any) -> None:
        try:
            load(path)
        except OSError:
            if Path(path).parent.name != "torchvision" or not Path(path).name.startswith("_C"):
                raise
            from ocl_backend.vision import operators

            operators.declare()

    vars(torch.ops)["load_library"] = load_library


def _stamp() -> Path:
    from hashlib import sha256
    from sys import prefix

    from platformdirs import user_cache_path

    environment = sha256(f"{torch.__version__} {prefix} {__file__}".encode()).hexdigest()[:12]
    return user_cache_path("oclgen") / "shim" / f"autoload-{environment}.json"


def _state(path: str | Path) -> list[int]:
    state = Path(path).stat()
    return [state.st_size, state.st_mtime_ns]
