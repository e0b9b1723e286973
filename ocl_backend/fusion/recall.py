"""Operators that Python serves. Once two calls have done the same, the shim does it without Python.

What a call does depends on its arguments' shapes, strides, dtypes and overlap, and on settings. A
module that changes a setting calls `forget`. How calls are noted: csrc/fusion/recipe.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import RLock
from typing import Any

import torch

from ocl_backend.runtime import launch, shim
from ocl_backend.runtime.interrupts import Later
from ocl_backend.runtime.overloads import overload, parts

RECALLED = "PrivateUse1"
"""The dispatch key of the operators whose calls are recalled: that of dense tensors."""

_open: Any = torch.library.Library  # untyped in torch
_libraries: dict[str, Any] = {}
_makers: dict[tuple[str, str], Callable[[], Callable[..., Any]]] = {}
"""What makes the kernel of an operator that was not called yet, by dispatch key and name."""
_lock = RLock()
"""Of the definitions; a finalizer that runs within one may call another operator."""


def register(
    name: str, make: Callable[[], Callable[..., Any]], key: str = RECALLED, most_on_host: int = 0
) -> None:
    """Let a kernel serve torch's operator on the device, where no call like it is recalled.

    Args:
        name: of the overload, such as `aten::add.Tensor`.
        make: returns the kernel, at the operator's first call: most processes call few operators.
        key: the dispatch key that the kernel is for; calls of others are not recalled.
        most_on_host: items of a recalled operator's call, at most, that torch's kernel for the CPU
            serves where the device is a processor.
    """
    if not _libraries:
        shim.library().ocl_define_operators_with(_DEFINE)
    if key not in _libraries:
        _libraries[key] = _open(f"{SPACE}{key}", "DEF")
    _makers[key, name] = make
    names = [part.encode() for part in parts(name)]
    if key == RECALLED:
        shim.library().ocl_recall_operator(
            *names, ctypes.c_int(False), ctypes.c_int64(most_on_host)
        )
    else:
        shim.library().ocl_serve_operator(*names, key.encode())


def uncalled() -> list[tuple[str, str]]:
    """Return the keys and names of the operators that are registered and not defined yet."""
    return [*_makers]


def define(key: str, name: str) -> None:
    """Define the operator that the shim calls in place of this one, unless it is defined."""
    with _lock:
        if (make := _makers.get((key, name))) is None:
            return
        space, base, label = parts(name)
        schema, kernel = str(overload(name)._schema), make()
        _libraries[key].define(schema.removeprefix(f"{space}::"))
        _libraries[key].impl(f"{base}.{label}" if label else base, kernel, key)
        del _makers[key, name]


def _define(space: bytes, name: bytes, status: Any) -> None:
    try:
        with Later():
            define(space.decode().removeprefix(SPACE), name.decode().removesuffix("."))
        status[0] = 0
    except BaseException as error:  # an interrupt too: Python drops what leaves a callback
        status[0] = launch.keep(error)


SPACE = "ocl_"
"""The namespace of the operators that the shim calls begins so; the rest is the dispatch key."""
_DEFINE = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
)(_define)  # fmt: skip


def register_composed(name: str) -> None:
    """Let calls of `name` be recalled as a whole, though torch composes it of other operators."""
    shim.library().ocl_recall_operator(
        b"aten", name.encode(), b"", ctypes.c_int(True), ctypes.c_int64(0)
    )


def begin_before_autograd() -> None:
    """Recall the operators that models call most before autograd, where no gradient is recorded.

    All of them are registered by then.
    """
    shim.library().ocl_recall_before_autograd()


def forget() -> None:
    """Forget what calls do: a setting has changed."""
    if _libraries:
        shim.library().ocl_forget_recalled()


def suspend(on: bool) -> None:
    """Recall nothing until each `suspend(True)` has met its `suspend(False)`.

    Every call is then made in Python, where observers of tuned calls see it.
    """
    shim.library().ocl_suspend_recall(ctypes.c_int(1 if on else -1))
