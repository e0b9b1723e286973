"""Idle moments of devices, and the part of the time that may be spent in them.

A moment is where a thread has just waited for a device (a copy to the host, `synchronize`), or is
made behind an optimizer's step, since a program may never wait. The thread goes on afterwards.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, Protocol

from torch.optim.optimizer import register_optimizer_step_post_hook

from ocl_backend.runtime import shim, streams


class Share:
    """A part of the time: says when something may be done again, after what it took before."""

    def __init__(self, part: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.part = part
        self._clock = clock
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """Whether something may be done now."""
        return self._clock() >= self._next

    def took(self, seconds: float) -> None:
        """Note how long it took, until now: it is not due until that is `part` of the time."""
        self._next = self._clock() + seconds * (1 / self.part - 1)


class User(Protocol):
    """Who uses idle moments."""

    def idle(self, device: int) -> None:
        """Use a moment in which a device has nothing to do."""

    def waiting(self) -> list[int]:
        """Return the devices on which a moment would be used now."""
        ...


_users: list[User] = []
_hook: Any = None


def use(user: User, on: bool = True) -> None:
    """Tell `user` of idle moments from now on; with `on` False, no longer."""
    if on != (user in _users):
        (_users.append if on else _users.remove)(user)
        _listen(bool(_users))


def end() -> None:
    """Tell no user any longer: the process ends."""
    _users.clear()
    _listen(False)


def _listen(on: bool) -> None:
    global _hook
    shim.library().ocl_when_idle(_CALLBACK if on else _NO_CALLBACK)
    if on and _hook is None:
        _hook = register_optimizer_step_post_hook(_after_step)
    elif not on and _hook is not None:
        _hook.remove()
        _hook = None


def _tell(device: int) -> None:
    for user in [*_users]:
        user.idle(device)


def _after_step(*_: object) -> None:
    for device in {device for user in [*_users] for device in user.waiting()}:
        streams.synchronize(device)


_KIND = ctypes.CFUNCTYPE(None, ctypes.c_int)
_CALLBACK, _NO_CALLBACK = _KIND(_tell), _KIND()
