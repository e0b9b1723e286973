"""A device's built programs: from memory, from disk, or from its compiler.

Import `oclgen.opencl.device` first, which opens devices: pyopencl's loader must know the runtimes
before. `oclgen.opencl.binaries` keeps programs on disk.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import pyopencl as cl

from oclgen import profiles
from oclgen.limits import DeviceInfo, Limits, broken
from oclgen.opencl import alone, binaries, fragments, health, lanes, ptx, sub_groups
from oclgen.opencl.binaries import Binaries
from oclgen.opencl.shown import nvidia_processor
from oclgen.plan import Frame, Needs
from oclgen.render import BF16_INSTRUCTION, NARROW


def _unless_asked(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return pyopencl's `compiler_output`, which warns of every log, for those who ask for logs.

    A filter of warnings would not do: a caller's own filters, such as pytest's, go before it.
    """

    def told(text: str) -> None:
        if os.environ.get("PYOPENCL_COMPILER_OUTPUT", "0") != "0":
            tell(text)

    return told


cl.compiler_output = _unless_asked(cl.compiler_output)

OPTIONS = ("-cl-mad-enable",)
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Option for GPUs. Without it their quotients may be 2.5 units of the last place off, so that
`floor(n * 49 / 49)` is not n: an item falls into the wrong bin. Processors divide exactly."""
ACTIVATION = "#define ACT("
"""Marks texts whose only quotients are in the activation of a sum, as of sigmoid and silu. They
need no `ROUNDED`: the sum and `exp` have such errors, too. A correct quotient is ten instructions
and a branch for each sum, which the compiler takes long for."""
BF16_PAIR = """\
uint bf16_pair(const float high, const float low)
{
    uint pair;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
"""
"""Begins programs that round to bf16 for processors of NVIDIA from sm_80 on (PTX ISA, `cvt`)."""
BF16_PROCESSORS = 8, 0
"""The first of NVIDIA's processors that have the instruction."""
MOST_PROGRAMS = 1024
"""LRU bound of a device's programs in memory; kernels in use keep theirs."""
INTEL = "Intel"
"""Part of the vendor's name that Intel's runtimes tell."""
OWN_CACHES = ("NVIDIA CUDA",)
"""Platforms whose driver keeps its programs. NVIDIA's binaries are PTX, which its driver compiles
when they are loaded, with the same cache. So our files only contain the text, and record that the
driver has the program. PoCL keeps its programs, too, but needs 75 ms to build a text for the second
time, and 3 ms to load a binary; its binaries are kept."""

MOST_KEYS = 512
"""LRU bound of texts whose digest is known: each new size of a call asks for texts that are."""
LOAD_S, PATIENCE_S = 0.03, 1.0
"""If a driver needs more than `LOAD_S` for each program that it has built before, and `PATIENCE_S`
more, it has lost its cache."""

_FORMAT = 1
_BF16 = f"-D{BF16_INSTRUCTION}"


class BuildError(RuntimeError):
    """The runtime's compiler refused a program; the message carries its log."""


class Built(NamedTuple):
    """A program's binary, and the seconds that its build took."""

    binary: bytes
    seconds: float


@dataclass
class Tally:
    """How many programs were built, in any process, and found on disk, and the seconds of each."""

    built: int = 0
    build_s: float = 0.0
    loaded: int = 0
    load_s: float = 0.0


@dataclass(eq=False)
class Programs:
    """The programs of one device in one context.

    `enforced` are the limits of a profile's device, whose compiler would refuse what exceeds them;
    None where the device's own compiler does.
    """

    context: Any
    handle: Any
    info: DeviceInfo
    stored: Binaries = field(default_factory=binaries.of_user)
    enforced: Limits | None = None
    tally: Tally = field(default_factory=Tally, init=False)
    used: dict[str, None] = field(default_factory=dict, init=False)
    """Names of the first `MOST_PROGRAMS` programs that were asked for, in that order."""
    _known: OrderedDict[str, Any] = field(default_factory=OrderedDict, init=False)
    _tell: Callable[[str], None] | None = field(default=None, init=False)
    _loading: Lock = field(default_factory=Lock, init=False)
    _digest: Callable[[str], str] = field(init=False)

    def __post_init__(self) -> None:
        """Name the device as the cache does."""
        self._digest = lru_cache(maxsize=MOST_KEYS)(self._key)
        self._identity = str(_identity(self.info))
        self._is_stored = self.info.runtime not in OWN_CACHES
        is_gpu = self.info.kind == "gpu" and not self.info.is_profiled
        sizes = lanes.sizes_of(self.handle, Path(cl._cl.__file__)) if is_gpu else ()
        self._lanes = lanes.fewest(sizes)
        self._rounding = rounding(self.handle) if is_gpu else ()
        self._has_bf16 = is_gpu and rounds_to_bf16(self.handle)

    def get(self, source: str) -> Any:
        """Return the built `pyopencl.Program` of `source`.

        Raises:
            BuildError: the compiler refused it; the message ends with its log.
        """
        program = self.find(source)
        return self.compile(source) if program is None else program

    def find(self, source: str) -> Any:
        """Return the program if it is in memory or on disk; None if it has to be built.

        Raises:
            BuildError: as `get`.
        """
        key = self.key(source)
        self._note(key)
        program = self._known.get(key)
        if program is None and self.enforced is not None:
            self._refuse(profiles.why_no_program(source, self.enforced))
        with suppress(KeyError):  # it is not there, or another thread has let go of it
            self._known.move_to_end(key)
        if program is None:
            with self._loading:  # `preload` may be at it
                program = self._known.get(key) or self._found(key, source)
        return program

    def preload(self, key: str) -> None:
        """Load the program of that name if it is on disk and not in memory."""
        with self._loading, suppress(BuildError):  # a profile's device may refuse it
            if key not in self._known:
                self._found(key, None)

    def _found(self, key: str, source: str | None) -> Any:
        """Return a program that is on disk, None if it is not; without `source` by its file."""
        if (content := self.stored.get(key)) is None:
            return None
        begin, program = time.perf_counter(), None
        if self._is_stored:
            program = self._load(key, content)
        elif self.tally.load_s <= PATIENCE_S + self.tally.loaded * LOAD_S:
            text = source or _text_in(content)
            program = self._built_again(key, text) if self.key(text) == key else None
        if program is None:
            self.stored.drop(key)
            return None
        self.tally.loaded += 1
        self.tally.load_s += time.perf_counter() - begin
        return program

    def hear(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of each program that is asked for, when that happens first."""
        self._tell = tell

    def _note(self, key: str) -> None:
        if key not in self.used and len(self.used) < MOST_PROGRAMS:
            self.used[key] = None
            if self._tell is not None:
                self._tell(key)

    def compile(self, source: str) -> Any:
        """Build `source`, whatever is known of it, and keep it in memory and on disk.

        Raises:
            BuildError: as `get`.
        """
        key = self.key(source)
        begin = time.perf_counter()
        program = self._remembered(key, self._compile(source, self.options(source)))
        self._count(time.perf_counter() - begin)
        self.stored.put(key, self._kept_of(program) or _text(source))
        return program

    def keep(self, source: str, built: Built) -> None:
        """Keep on disk what another process built of `source`."""
        self._count(built.seconds)
        self.stored.put(self.key(source), built.binary or _text(source))

    def take(self, source: str, built: Built) -> Any:
        """Return the program that another process built of `source`; None if it is refused."""
        key = self.key(source)
        if (program := self._known.get(key)) is not None:
            return program
        return self._load(key, built.binary) if self._is_stored else self._built_again(key, source)

    def built_for_others(self, source: str, options: tuple[str, ...]) -> Built:
        """Build for `take` and `keep` elsewhere; empty if the driver's cache brings it there.

        Raises:
            BuildError: as `get`.
        """
        begin = time.perf_counter()
        program = self._compile(source, options)
        return Built(self._kept_of(program), time.perf_counter() - begin)

    def options(self, source: str) -> tuple[str, ...]:
        """Return the options that the compiler is given for `source`."""
        if self.info.kind == "cpu":
            more = alone.options(source, INTEL in self.info.vendor)
        else:
            more = lanes.options(source, self._lanes)
        if ACTIVATION not in source and NARROW not in source:
            more = (*self._rounding, *more)
        if self._has_bf16 and BF16_INSTRUCTION in source:
            more = (*more, _BF16)
        if fragments.COOPERATIVE in source or sub_groups.SHUFFLE in source:
            more = (*more, fragments.STANDARD)
        return (*OPTIONS, *more)

    def binary(self, source: str) -> bytes:
        """Return what `source` was built to, for `load` in another process on this device.

        Raises:
            BuildError: as `get`.
        """
        return _binary_of(self.get(source))

    def load(self, source: str, binary: bytes) -> None:
        """Take `binary` for what `source` builds to; one that is refused is built when needed."""
        self._load(self.key(source), binary)

    def forget(self) -> None:
        """Let go of all programs in memory, after many were tried; kernels in use keep theirs."""
        self._known.clear()

    def key(self, source: str) -> str:
        """Return the name of a program on disk: a digest of all that its binary depends on."""
        return self._digest(source)

    def _key(self, source: str) -> str:
        text = f"{self._identity}\0{self.options(source)}\0{source}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _load(self, key: str, binary: bytes) -> Any:
        with suppress(cl.Error):
            program = cl.Program(self.context, [self.handle], [binary]).build()
            return self._remembered(key, program)
        return None

    def _built_again(self, key: str, source: str) -> Any:
        """Build what the driver should have in its own cache."""
        return self._remembered(key, self._compile(source, self.options(source)))

    def _kept_of(self, program: Any) -> bytes:
        """Return the binary that our file holds, none where the driver keeps it."""
        return _binary_of(program) if self._is_stored else b""

    def _remembered(self, key: str, program: Any) -> Any:
        """Keep a program in memory, and return it."""
        self._known[key] = self._checked(program)
        with suppress(KeyError):  # another thread has let go of all
            while len(self._known) > MOST_PROGRAMS:
                self._known.popitem(last=False)
        return program

    def _checked(self, program: Any) -> Any:
        """Return `program`, unless a kernel of it takes more than a profile's device has."""
        if self.enforced is None:
            return program
        for kernel in program.all_kernels():
            asked = cl.kernel_work_group_info
            local_bytes = kernel.get_work_group_info(asked.LOCAL_MEM_SIZE, self.handle)
            group = kernel.get_work_group_info(asked.COMPILE_WORK_GROUP_SIZE, self.handle)
            frame = Frame(kernel.function_name, tuple(group) if all(group) else (1,), local_bytes)
            self._refuse(broken(Needs((frame,)), self.enforced))
        return program

    def _refuse(self, reason: str | None) -> None:
        if reason is not None:
            raise BuildError(f"{self.info.name}: {reason}")

    def _count(self, seconds: float) -> None:
        self.tally.built += 1
        self.tally.build_s += seconds

    def _compile(self, source: str, options: tuple[str, ...]) -> Any:
        try:
            # a cache of pyopencl's own would keep every program twice, without a bound
            text = BF16_PAIR + source if _BF16 in options else source
            program = cl.Program(self.context, text).build(options=[*options], cache_dir=False)
            if not (target := ptx.target_of(source)):
                return program
            retargeted = [ptx.retarget(_binary_of(program), target)]
            return cl.Program(self.context, [self.handle], retargeted).build()
        except cl.Error as error:
            raise BuildError(f"{self.info.name}: {str(error)[:4000]}") from error


def rounding(handle: Any) -> tuple[str, ...]:
    """Return the option by which a device (`pyopencl.Device`) divides exactly, if it has it."""
    offered = handle.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    return (ROUNDED,) if offered else ()


def rounds_to_bf16(handle: Any) -> bool:
    """Say whether a device (`pyopencl.Device`) of NVIDIA rounds floats to bf16 by instructions."""
    processor = nvidia_processor(handle)
    return processor is not None and processor >= BF16_PROCESSORS


def _text(source: str) -> bytes:
    """Return the content of the file of a program whose binary the driver keeps: its text."""
    return zlib.compress(source.encode(), 1)


def _text_in(content: bytes) -> str:
    """Return the text in such a file, "" where there is none."""
    with suppress(zlib.error, UnicodeDecodeError):
        return zlib.decompress(content).decode()
    return ""


def _binary_of(program: Any) -> bytes:
    (binary,) = program.get_info(cl.program_info.BINARIES)
    return bytes(binary)


def _identity(info: DeviceInfo) -> tuple[object, ...]:
    """Return what binaries depend on beside text and options.

    A processor's runtime compiles for the instructions that it finds, which its name does not
    tell: virtual machines hide some.
    """
    processor = health.processor() if info.kind == "cpu" else ""
    return (_FORMAT, info, processor, health.compiler_variables())
