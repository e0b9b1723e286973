"""The settings of `torch.ocl` that operators read: every one is here, and is a `Setting`.

Python reads a setting at every call, but a recalled call runs without Python (recall.py). So
setting a `Setting` also makes the device forget what calls did with the old value. The operator
that reads a setting explains its meaning.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from ocl_backend.fusion import held, recall
from ocl_backend.runtime import shim
from oclgen.problem import Problem

Value = TypeVar("Value")

SYNC_ERRORS_VARIABLE = "OCLGEN_SYNC_ERRORS"
RACE_VARIABLE = "OCLGEN_RACE"

ALL: dict[str, Setting[Any]] = {}
"""Every setting by its name."""


class Setting(Generic[Value]):
    """A value that operators read, in all threads. An attribute of a class may be one."""

    def __init__(self, name: str, initial: Value) -> None:
        self.name = name
        self.value = initial
        self._listeners: list[Callable[[Value], object]] = []
        ALL[name] = self

    def set(self, value: Value) -> None:
        """Let calls from now on see `value`.

        Raises:
            LaunchError, torch.OutOfMemoryError, BuildError: from launches that were held back.
        """
        held.settle()  # what was called before sees the old value
        self.value = value
        for listener in self._listeners:
            listener(value)
        recall.forget()  # last: what another thread learns from a call with the old value goes, too

    def when_set(self, listener: Callable[[Value], object]) -> None:
        """Call `listener(value)` whenever the setting is set, to drop what the old one made."""
        self._listeners.append(listener)

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> Setting[Value] | Value:
        """Return the value for an object of the class, the setting for the class itself."""
        return self if instance is None else self.value

    def __set__(self, instance: object, value: Value) -> None:
        """Set it."""
        self.set(value)


class MatmulPrecision:
    """`torch.ocl.matmul`, the counterpart of `torch.backends.cuda.matmul`.

    `allow_tf32`: products of float32 matrices may round what they multiply to tf32 (11 bits, a
    relative error of about 3e-4), as matrix units do; sums stay fp32. Off by default.
    """

    __slots__ = ()
    allow_tf32 = Setting("matmul.allow_tf32", initial=False)


class ConvPrecision:
    """`torch.ocl.conv`, the counterpart of `torch.backends.cudnn` for precision.

    `allow_tf32`: as `torch.ocl.matmul`'s, for convolutions of float32. Off by default, unlike
    cuDNN's.
    """

    __slots__ = ()
    allow_tf32 = Setting("conv.allow_tf32", initial=False)


matmul = MatmulPrecision()
conv = ConvPrecision()

SYNC_ERRORS = Setting(
    "sync_errors", initial=os.environ.get(SYNC_ERRORS_VARIABLE, "0") not in ("", "0")
)
TUNE_FIRST: Setting[Callable[[int, Problem], None] | None] = Setting("tune_first", initial=None)
"""A function that tunes a problem of a device before it is first served, or None."""
CONV_ACCURACY: Setting[float | None] = Setting("conv_accuracy", initial=None)
RACE = Setting("race", initial=os.environ.get(RACE_VARIABLE, "0") not in ("", "0"))
KEEP_WEIGHTS = Setting("keep_weights", initial=True)
KEEP_WEIGHTS.when_set(lambda on: shim.library().ocl_keep_weights(ctypes.c_int(on)))
FUSION = Setting("fusion", initial=True)
FUSION.when_set(lambda on: shim.library().ocl_set_fusion(ctypes.c_int(on)))


def set_sync_errors(on: bool) -> None:
    """Let a wrong call itself raise the CPU's error; otherwise the next call that waits raises.

    That concerns calls that take indices, and probabilities of `bernoulli`, `multinomial` and
    `binary_cross_entropy`. It is slow, because each of these calls waits for the device.
    """
    SYNC_ERRORS.set(on)


def set_conv_accuracy(bound: float | None) -> None:
    """Let convolutions run only on variants whose error is known to be at most `bound`.

    The error is the relative L2 error against float64, measured with each variant when it was
    tuned: about 5e-7 for direct sums in float32, 1e-6 to 1e-5 for Winograd's larger tiles. None,
    the default, takes what passed verification: 1e-5 for float32.

    Raises:
        ValueError: the bound is not positive.
    """
    if bound is not None and not bound > 0:
        raise ValueError(f"an accuracy of {bound} is unreachable; give a positive error, or None")
    CONV_ACCURACY.set(bound)


def set_racing(on: bool = True) -> None:
    """Let problems without a record be raced beside the program and winners serve, or not.

    If a problem is called often, the variants with the least predicted times are timed in turns in
    idle moments. The fastest serves from then on, also in later programs. Results may then change
    in their last bits. Off by default; nothing is raced under
    `torch.use_deterministic_algorithms(True)`.
    """
    RACE.set(on)


def keep_weights(on: bool = True) -> None:
    """Keep prepared weights between calls, which is the default, or drop them.

    Prepared weights are packed weights, filter transforms and folded normalisations. They are kept
    where no gradient is recorded, from the second call with the same weights on. They are made
    again after any write to the memory of the weights, and dropped with it, or when memory is
    short. They take at most an eighth of the device's memory; `torch.ocl.kept_weights_bytes` says
    how much. Writes of other libraries through OpenCL of their own are not noticed: switch this off
    for them.
    """
    KEEP_WEIGHTS.set(on)


def set_fusion(on: bool) -> None:
    """Let operators that follow each other run as one kernel where that changes no result, or not.

    On by default. Examples are batch normalisation after a convolution, and a residual addition and
    an activation after a convolution, a batch normalisation or a linear layer. Results are the same
    except for rounding: in fp16 and bf16, results in between are not rounded. For all threads.
    """
    FUSION.set(on)


class fusion:  # noqa: N801  (a context of `torch.ocl`, named as torch's are)
    """Context in which `set_fusion(on)` holds; it ends with the setting from before."""

    def __init__(self, on: bool = True) -> None:
        self._wanted = on

    def __enter__(self) -> None:
        """Switch, and remember what was set."""
        self._before = FUSION.value
        set_fusion(self._wanted)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Switch back."""
        set_fusion(self._before)
