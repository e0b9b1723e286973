"""Runs a network's steps on `ocl` without building or computing anything: only calls are noted.

Every program stays unbuilt, so that every launch waits for it in order, as in a first step
(`ocl_backend.runtime.pending`). A step that needs no value on the host ends at once. Buffers are
allocated, but no kernel writes to them: a processor's runtime takes no memory for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.dispatch import accepted, tuned
from ocl_backend.fusion import held
from ocl_backend.runtime import pending
from oclgen.opencl.device import Device, devices
from oclgen.problem import Problem

DROPPED = 64
"""Tuned calls after which all that waits is dropped."""


class ValueNeededError(RuntimeError):
    """A step reads a number of the device, which nothing has computed."""


class _Nothing:
    """Builds nothing, in place of `oclgen.opencl.ahead.Ahead`."""

    def find(self, source: str) -> Future[Any]:
        """Return a future that never ends."""
        del source
        return Future()

    def wait(self, future: Future[Any], tell: object = None) -> Any:
        """Refuse to wait.

        Raises:
            ValueNeededError: always.
        """
        raise ValueNeededError("the step needs a value on the host")


@contextmanager
def unbuilt(device: Device) -> Iterator[None]:
    """Build no program of a device within the context; what was launched there is dropped.

    Kernels that were asked for stay unbuilt, and a later launch of one waits without end: the
    process is to end soon.

    The CPU is not asked whether it takes a call, since some answers need the call's values.

    Args:
        device: opened, with nothing that waits. Tuned calls are forgotten at the end.
    """
    ahead, nothing = device.ahead, _Nothing()
    device.ahead = nothing  # type: ignore[assignment]
    ask, accepted.ask = accepted.ask, lambda *_: None
    try:
        yield
    finally:
        held.forget()
        pending.drop()
        tuned.reload_tuned()
        device.ahead, accepted.ask = ahead, ask


def calls(step: Callable[[], object], index: int = 0) -> Counter[Problem]:
    """Return how often `step` asks for each tuned problem, all sizes as they are.

    Args:
        step: runs on the device; its tensors are not to be read afterwards.
        index: of the device.

    Raises:
        ValueNeededError: the step needs a value.
    """
    met: Counter[Problem] = Counter()

    def notice(call: tuned.TunedCall) -> None:
        met[call.choice.problem] += 1
        if met.total() % DROPPED == 0:  # the line would be full one day, and then want its programs
            pending.drop()

    with unbuilt(devices()[index]):
        tuned.observe(notice)
        try:
            step()
        finally:
            tuned.observe(notice, on=False)
    return met
