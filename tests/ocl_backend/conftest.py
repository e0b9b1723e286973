"""Fixtures of the torch device's tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest


@pytest.fixture
def as_gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device with a GPU's geometry; use sizes that no other test prepares."""
    from ocl_backend.ops.norm import batch_norm

    local = min(64, device.limits.max_work_group)
    monkeypatch.setattr(device, "limits", replace(device.limits, kind="gpu", max_work_group=local))
    batch_norm.rule_of.cache_clear()
    yield device
    batch_norm.rule_of.cache_clear()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises: a process that a shell starts in its background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
