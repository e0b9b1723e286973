"""Operators whose calls are recalled: once two have done the same, the shim does it without Python.

What a call does depends on its arguments' shapes, strides, dtypes and overlap, and on settings. A
module that changes a setting calls `forget`. How calls are noted: csrc/fusion/recipe.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from ocl_backend.runtime import shim

_open: Any = torch.library.Library  # untyped in torch
_libraries: list[Any] = []


def register(overload: Any, kernel: Callable[..., Any]) -> None:
    """Let `kernel` serve torch's `overload` on the device, where no call like it is recalled."""
    if not _libraries:
        _libraries.append(_open("ocl_plain", "DEF"))
    plain, schema = _libraries[0], overload._schema
    (space, name), label = schema.name.split("::"), schema.overload_name
    plain.define(str(schema).removeprefix(f"{space}::"))
    plain.impl(f"{name}.{label}" if label else name, kernel, "PrivateUse1")
    names = space.encode(), name.encode(), label.encode()
    shim.library().ocl_recall_operator(*names, ctypes.c_int(False))


def register_composed(name: str) -> None:
    """Let calls of `name` be recalled as a whole, though torch composes it of other operators."""
    shim.library().ocl_recall_operator(b"aten", name.encode(), b"", ctypes.c_int(True))


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
