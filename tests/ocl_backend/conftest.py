"""Fixtures of the torch device's tests."""

from __future__ import annotations

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
