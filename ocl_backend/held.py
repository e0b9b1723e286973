"""Holds launches back until the next command, so that they can run as one with what follows them.

A convolution's result is often normalised and activated, and then nobody sees what lay in between.
Torch runs eagerly and does not say what comes next; but a launch that nobody waits for may as well
be enqueued a moment later. So the last few may be held: a chain in which each step reads what the
one before it wrote. Any other command lets the chain run first, so the order is the usual one.

Here is the chain; which steps can be made one, and how, their `Rule`s know.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from threading import RLock, get_ident
from types import TracebackType
from typing import Any, Literal, NamedTuple

import torch

from ocl_backend import shim

Kind = Literal[
    "convolution", "product", "batch_norm", "add", "activation", "mask", "batch_norm_backward"
]

FOLLOWERS: dict[Kind, frozenset[Kind]] = {
    "convolution": frozenset({"batch_norm", "add", "activation"}),
    "product": frozenset({"add", "activation"}),
    "batch_norm": frozenset({"add", "activation"}),
    "add": frozenset({"activation", "mask"}),
    "mask": frozenset({"batch_norm_backward"}),
    "activation": frozenset(),
    "batch_norm_backward": frozenset(),
}
"""What may be held behind what: some rule can make one of the two."""


class Rule:
    """A call whose shapes, strides and dtypes are known: how it runs, alone and with followers.

    `items` and `dtype` are those of its result, which is dense, as is what it reads of the step
    before it: both lie in the same order, whatever their shapes.
    """

    kind: Kind
    operator: str
    device: int
    items: int
    dtype: torch.dtype

    def alone(self, step: Step) -> None:
        """Enqueue what torch asked for, and nothing else."""
        raise NotImplementedError

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue `step` and as many of the steps `after` it as can be one with it; return those.

        Nobody can see the results of `step` and of those `after` it, but for the last one's.
        """
        del after
        self.alone(step)
        return 0


class Step(NamedTuple):
    """A held call: addresses, and whatever else its rule needs, such as the tensors of weights."""

    rule: Rule
    source: int
    """Address of what it reads of the step before it; 0: it reads nothing of another."""
    result: int
    values: Sequence[Any]
    """What its launch takes: addresses and numbers."""
    state: Any = None


pending: list[Step] = []
"""The chain. Every launch looks whether it is empty; only this module changes it."""

LEAST_ITEMS = 1 << 14
"""Items of a result below which holding it back costs the host more than a launch saves."""

_lock = RLock()
_settler = 0
"""The thread that lets the chain run; 0: none."""
_on = True


def begin(step: Step, reads: Sequence[int], writes: Sequence[int]) -> None:
    """Hold `step` back, behind nothing, or run it if that cannot be or does not pay.

    `reads` and `writes` are the addresses of all memory that it uses; 0 stands for none.

    Raises:
        LaunchError, torch.OutOfMemoryError, BuildError: as launches do, this or what was held.
    """
    if step.rule.items < LEAST_ITEMS:
        step.rule.alone(step)
        return
    with _lock:
        if pending:
            settle()
        if _on and not _settler and _hold(step.rule.device, reads, writes):
            pending.append(step)
        else:
            step.rule.alone(step)


def follow(step: Step, reads: Sequence[int] = (), writes: Sequence[int] = ()) -> bool:
    """Hold `step` back if it continues what is held, and return whether it does.

    `reads` and `writes` are the addresses of all memory that it uses, besides its source, and its
    result where that lies in the source's place. It reads nothing else that is still to be written,
    and writes nothing that what is held still reads.
    """
    with _lock:
        if _settler or not pending:
            return False
        last, rule = pending[-1], step.rule
        fits = (
            last.result == step.source
            and rule.kind in FOLLOWERS[last.rule.kind]
            and last.rule.items == rule.items
            and last.rule.dtype is rule.dtype
            and _hold(rule.device, reads, writes)
        )
        if fits:
            pending.append(step)
        return fits


def settle() -> None:
    """Enqueue what is held back.

    Raises:
        LaunchError, torch.OutOfMemoryError, BuildError: as launches do; the rest of the chain is
            then lost, as it would be had its first part failed at once.
    """
    global _settler
    if _settler == get_ident():
        return  # its launches ask, too
    with _lock:
        if not pending:
            return
        _settler = get_ident()
        try:
            if _listeners().value:
                shim.library().ocl_name_held()
            _run(pending)
        except BaseException as error:
            error.add_note(f"{pending[-1].rule.operator} was held back until now")
            raise
        finally:
            pending.clear()
            _let_go()()
            _settler = 0


def _run(steps: Sequence[Step]) -> None:
    if len(steps) == 1:
        steps[0].rule.alone(steps[0])
        return
    at = 0
    while at < len(steps):
        step, end = steps[at], _reach(steps, at)
        if end == at + 1:
            step.rule.alone(step)
            at = end
        else:
            at += 1 + step.rule.fuse(step, steps[at + 1 : end])


def _reach(steps: Sequence[Step], at: int) -> int:
    """Return where the steps from `at` end whose results, but the last one's, nobody can see.

    A result is gone if the next step writes in its place, or if its memory was dropped.
    """
    end = at + 1
    while end < len(steps):
        result, step = steps[end - 1].result, steps[end]
        # a destructor that calls torch may have put a stranger in between
        if step.source != result or not (step.result == result or _is_dropped()(result)):
            break
        end += 1
    return end


def _hold(device: int, reads: Sequence[int], writes: Sequence[int]) -> bool:
    """Keep memory from being handed out again; False if the shim says that this cannot be held."""
    if not reads and not writes and not _listeners().value:
        return True  # a profiler would be told whose launch this is
    first, last = len(reads), len(writes)
    words = WORDS[first + last](device, first, last, *reads, *writes)
    return _shim_hold()(words) != 0


WORDS = [Struct(f"{3 + count}q").pack for count in range(16)]
"""What the shim takes, by the number of addresses: one packed argument is soonest handed over."""


@cache
def _shim_hold() -> Callable[[bytes], int]:
    hold = shim.library()["ocl_hold"]
    hold.argtypes = [ctypes.c_char_p]
    return hold


@cache
def _is_dropped() -> Callable[[int], int]:
    """Return the shim's function that tells whether only what is held has some memory."""
    is_dropped = shim.library()["ocl_is_dropped"]
    is_dropped.argtypes = [ctypes.c_int64]
    return is_dropped


@cache
def _let_go() -> Callable[[], int]:
    """Return the shim's function that gives the memory of what was held free."""
    return shim.library()["ocl_let_go"]


@cache
def _listeners() -> ctypes.c_int:
    """Return the number of profilers at work, as the shim counts them."""
    return ctypes.c_int.in_dll(shim.library(), "ocl_listeners")


def set_fusion(on: bool) -> None:
    """Let operators that follow each other run as one kernel where nobody can tell, or not.

    On by default: batch normalisation behind a convolution, residual addition and activation
    behind that, batch normalisation or a linear layer, and the like. Results are the same but for
    rounding; in fp16 and bf16 what lies in between is not rounded. For all threads.
    """
    global _on
    with _lock:
        settle()
        _on = on


class fusion:  # noqa: N801  (a context of `torch.ocl`, named as torch's are)
    """Context in which `set_fusion(on)` holds; it ends with the setting from before."""

    def __init__(self, on: bool = True) -> None:
        self._wanted = on

    def __enter__(self) -> None:
        """Switch, and remember what was set."""
        self._before = _on
        set_fusion(self._wanted)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Switch back."""
        set_fusion(self._before)


STATUS = ((torch.OutOfMemoryError, 2), (torch.AcceleratorError, 3))
"""What the shim raises in place of an error, by its status; anything else is 1."""


def _settle_for_shim() -> int:
    """Enqueue what is held before a command of the shim; its status stands for Python's error."""
    try:
        settle()
    except BaseException as error:  # an interrupt too: Python drops what leaves a callback
        text = "\n".join([str(error) or repr(error), *getattr(error, "__notes__", ())])
        shim.library().ocl_settling_failed(text.encode())
        return next((status for kind, status in STATUS if isinstance(error, kind)), 1)
    return 0


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int)(_settle_for_shim)


def register() -> None:
    """Let the shim settle before its own commands; a forked child inherits nothing held."""
    shim.library().ocl_hold_with(_CALLBACK)
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    global _lock, _settler
    _lock, _settler = RLock(), 0
    pending.clear()
