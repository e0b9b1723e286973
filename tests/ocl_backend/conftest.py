"""Fixtures of the torch device's tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.ocl_backend.late import Late


@pytest.fixture
def without_host(device: Any) -> Iterator[Any]:
    """The device, whose kernels serve every call, also where the host of a processor would."""
    from ocl_backend.runtime import memory

    is_processor = device.limits.kind == "cpu"
    memory.set_processor(device.index, False)
    yield device
    memory.set_processor(device.index, is_processor)


@pytest.fixture(params=["host", "kernels"])
def by_either(request: Any, device: Any) -> Any:
    """The device, with and without the host of a processor."""
    return device if request.param == "host" else request.getfixturevalue("without_host")


@pytest.fixture
def as_gpu(device: Any, without_host: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device with a GPU's geometry; use sizes that no other test prepares."""
    from ocl_backend.ops.norm import batch_norm

    local = min(64, device.limits.max_work_group)
    monkeypatch.setattr(device, "limits", replace(device.limits, kind="gpu", max_work_group=local))
    batch_norm.rule_of.cache_clear()
    yield device
    batch_norm.rule_of.cache_clear()


@pytest.fixture
def gpu(device: Any, without_host: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device with a GPU's groups of 256, or as many work-items as it has."""
    most = min(device.limits.max_work_group, 256)
    monkeypatch.setattr(device, "limits", replace(device.limits, kind="gpu", max_work_group=most))
    return device


@pytest.fixture(params=["own", "gpu"])
def anywhere(request: Any, device: Any) -> Any:
    """The device with its own geometry and with a GPU's."""
    return device if request.param == "own" else request.getfixturevalue("as_gpu")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises: a process that a shell starts in its background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def late(device: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Late]:
    """A device whose programs are built when they are waited for, also those of launches before."""
    from ocl_backend.dispatch import tuned
    from ocl_backend.runtime import launch, streams

    made = Late(device.ahead)
    launch._pattern.cache_clear()  # other sizes of a launch are copied, and find no program
    monkeypatch.setattr(device.ahead, "find", made.find)
    monkeypatch.setattr(device.ahead, "wait", made.wait)
    tuned.reload_tuned()
    yield made
    streams.synchronize(device.index)
    tuned.reload_tuned()
